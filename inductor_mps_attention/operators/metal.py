"""The operators on an MPS device: outputs are allocated here, the runtime launches Metal kernels into them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import UnsupportedAttention
from ..runtime import Role, launch, unsupported
from . import layout
from .checks import check_backward, check_forward
from .transforms import refuse_tangents


def forward(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, scale: float, lower: int | None, upper: int | None
) -> tuple[Tensor, Tensor]:
    """`flash_forward` by one kernel."""
    refuse_tangents(q, k, v)
    check_forward(q, k, v, key_mask, scale)
    check_supported(q, v, key_mask)
    out, logsumexp = layout.empty_out(q, v), layout.empty_logsumexp(q)
    q, k, v = map(layout.dense_rows, (q, k, v))
    _launch(Role.FORWARD, {"q": q, "k": k, "v": v, "out": out, "logsumexp": logsumexp}, scale, lower, upper)
    return out, logsumexp


def backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    key_mask: Tensor | None,
    scale: float,
    lower: int | None,
    upper: int | None,
    output_mask: list[bool],
) -> tuple[Tensor, ...]:
    """`flash_backward` by three kernels; those whose results nobody wants are not launched."""
    check_forward(q, k, v, key_mask, scale)
    check_backward(grad_out, q, v, out, logsumexp)
    check_supported(q, v, key_mask)
    want_dq, want_dkv = output_mask[0], output_mask[1] or output_mask[2]
    dq = layout.empty_grad(q) if want_dq else q.new_empty(0)
    dk, dv = (layout.empty_grad(t) if want_dkv else t.new_empty(0) for t in (k, v))  # one kernel writes both
    grad_out, q, k, v, out = map(layout.dense_rows, (grad_out, q, k, v, out))
    logsumexp = logsumexp.contiguous()
    tensors = {"grad_out": grad_out, "q": q, "k": k, "v": v, "out": out, "logsumexp": logsumexp}
    if want_dq or want_dkv:
        tensors["delta"] = layout.empty_logsumexp(q)
        _launch(Role.BACKWARD_DELTA, tensors, scale, lower, upper)
    if want_dq:
        _launch(Role.BACKWARD_DQ, tensors | {"grad_q": dq}, scale, lower, upper)
    if want_dkv:
        _launch(Role.BACKWARD_DKV, tensors | {"grad_k": dk, "grad_v": dv}, scale, lower, upper)
    return tuple(grad if want else grad.new_empty(0) for grad, want in zip((dq, dk, dv), output_mask, strict=True))


def check_supported(q: Tensor, v: Tensor, key_mask: Tensor | None) -> None:
    """Raises UnsupportedAttention, with the limit and the value got, where no kernel computes it on q's device.

    The fakes ask as well: compiled code fails when it is compiled, not when it runs.
    """
    if q.device.type != "mps":
        return
    if key_mask is not None:
        raise UnsupportedAttention(f"the Metal kernels take no key_mask, got one of shape {tuple(key_mask.shape)}")
    if q.dtype == torch.float64:
        raise UnsupportedAttention("dtype float64; Metal kernels take float32, float16 and bfloat16")
    rejected = unsupported(q.dtype, q.shape[3], v.shape[3])
    if rejected is not None:
        raise UnsupportedAttention(rejected.message)


def _launch(role: Role, tensors: dict[str, Tensor], scale: float, lower: int | None, upper: int | None) -> None:
    rejected = launch(role, tensors, scale=scale, lower=lower, upper=upper)
    if rejected is not None:
        raise UnsupportedAttention(rejected.message)

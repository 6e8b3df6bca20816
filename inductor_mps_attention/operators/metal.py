"""The operators on an MPS device: outputs are allocated here, the runtime launches Metal kernels into them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import UnsupportedAttention
from ..runtime import Role, launch
from . import layout
from .checks import check_backward, check_forward, refuse_key_mask


def forward(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, scale: float, lower: int | None, upper: int | None
) -> tuple[Tensor, Tensor]:
    """`flash_forward` by one kernel."""
    check_forward(q, k, v, key_mask, scale)
    refuse_key_mask(key_mask)
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
    refuse_key_mask(key_mask)
    want_dq, want_dk, want_dv = output_mask
    dq, dk, dv = map(layout.empty_grad, (q, k, v))
    grad_out, q, k, v, out = map(layout.dense_rows, (grad_out, q, k, v, out))
    logsumexp = logsumexp.contiguous()
    tensors = {"grad_out": grad_out, "q": q, "k": k, "v": v, "out": out, "logsumexp": logsumexp}
    if want_dq or want_dk or want_dv:
        tensors["delta"] = torch.empty_like(logsumexp)
        _launch(Role.BACKWARD_DELTA, tensors, scale, lower, upper)
    if want_dq:
        _launch(Role.BACKWARD_DQ, tensors | {"grad_q": dq}, scale, lower, upper)
    if want_dk or want_dv:
        _launch(Role.BACKWARD_DKV, tensors | {"grad_k": dk, "grad_v": dv}, scale, lower, upper)
    return tuple(grad if want else grad.new_empty(0) for grad, want in zip((dq, dk, dv), output_mask, strict=True))


def _launch(role: Role, tensors: dict[str, Tensor], scale: float, lower: int | None, upper: int | None) -> None:
    rejected = launch(role, tensors, scale=scale, lower=lower, upper=upper)
    if rejected is not None:
        raise UnsupportedAttention(rejected.message)

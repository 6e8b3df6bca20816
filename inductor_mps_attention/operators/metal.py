"""The operators on an MPS device: outputs are allocated here, the runtime launches Metal kernels into them."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import runtime
from ..errors import UnsupportedAttention
from . import layout
from .checks import check_backward, check_forward
from .transforms import refuse_tangents


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    scale: float,
    lower: int | None,
    upper: int | None,
    logsumexp: bool = True,
) -> tuple[Tensor, Tensor]:
    """`flash_forward` by its kernels."""
    refuse_tangents(q, k, v)
    check_forward(q, k, v, key_mask, scale)
    check_supported(q, v)
    out, statistics = layout.empty_out(q, v), layout.empty_logsumexp(q) if logsumexp else layout.no_logsumexp(q)
    q, k, v = map(layout.dense_rows, (q, k, v))
    tensors = _with(key_mask, {"q": q, "k": k, "v": v, "out": out})
    if logsumexp:
        tensors["logsumexp"] = statistics
    _raise(runtime.forward(tensors, scale=scale, lower=lower, upper=upper))
    return out, statistics


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
    """`flash_backward` by its kernels; those whose results nobody wants are not launched."""
    check_forward(q, k, v, key_mask, scale)
    check_backward(grad_out, q, v, out, logsumexp)
    check_supported(q, v)
    wanted = (output_mask[0], output_mask[1], output_mask[2])
    grads = [layout.empty_grad(t) if want else t.new_empty(0) for t, want in zip((q, k, v), wanted, strict=True)]
    grad_out, q, k, v, out = map(layout.dense_rows, (grad_out, q, k, v, out))
    tensors = {"grad_out": grad_out, "q": q, "k": k, "v": v, "out": out, "logsumexp": logsumexp.contiguous()}
    written = {
        name: grad for name, grad, want in zip(("grad_q", "grad_k", "grad_v"), grads, wanted, strict=True) if want
    }
    tensors = _with(key_mask, tensors | written)
    _raise(runtime.backward(tensors, scale=scale, lower=lower, upper=upper, wanted=wanted))
    return tuple(grads)


def check_supported(q: Tensor, v: Tensor) -> None:
    """Raises UnsupportedAttention, with the limit and the value got, where no kernel computes it on q's device.

    The fakes ask as well: compiled code fails when it is compiled, not when it runs. Kernels are made for their head
    dims, so a symbolic one becomes a number here, with a guard.
    """
    if q.device.type != "mps":
        return
    if q.dtype == torch.float64:
        raise UnsupportedAttention("dtype float64; Metal kernels take float32, float16 and bfloat16")
    rejected = runtime.unsupported(q.dtype, int(q.shape[3]), int(v.shape[3]))
    if rejected is not None:
        raise UnsupportedAttention(rejected.message)


def _with(key_mask: Tensor | None, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return tensors if key_mask is None else tensors | {"key_mask": key_mask}


def _raise(rejected: runtime.Rejected | None) -> None:
    if rejected is not None:
        raise UnsupportedAttention(rejected.message)

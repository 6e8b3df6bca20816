"""Flash attention called directly, without torch.compile: the operator with SDPA's conventions around it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .errors import UnsupportedAttention
from .operators import flash_forward
from .operators.transforms import functorch_differentiates
from .spec import CAUSAL, FULL


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale * q @ k.mT) @ v by the fused kernels, with their backward; as F.scaled_dot_product_attention.

    q: (..., heads, queries, head_dim), k: (..., kv_heads, keys, head_dim), v: (..., kv_heads, keys, v_head_dim), of
    3 or more dims, float32, float16 or bfloat16 on one MPS device (on the CPU the reference runs).
    scale: 1/sqrt(head_dim) if None.
    is_causal: query i sees the keys 0 to i.
    enable_gqa: heads may be a multiple of kv_heads.
    return_lse: also return the float32 natural logsumexp of the scaled scores, (..., heads, queries), without gradient.

    Under autocast the inputs are cast as autocast casts SDPA's. Raises ValueError where the shapes are no attention,
    and UnsupportedAttention where no kernel exists.
    """
    q, k, v = _autocast(q, k, v)
    _check_call(q, k, v, scale, enable_gqa)
    lead = q.shape[:-3]
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[-1])
    band = CAUSAL if is_causal else FULL
    needs_lse = return_lse or (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad))
    out, logsumexp = flash_forward(*map(_four_dims, (q, k, v)), None, scale, band.lower, band.upper, needs_lse)
    out = out.reshape(*lead, *out.shape[1:])
    return (out, logsumexp.reshape(*lead, *logsumexp.shape[1:])) if return_lse else out


def _check_call(q: Tensor, k: Tensor, v: Tensor, scale: float | None, enable_gqa: bool) -> None:
    """What the operator can't see any more: leading dims, whether groups are meant, what scale was."""
    if isinstance(scale, Tensor):
        raise TypeError("scale must be a number; a tensor's gradient would be lost: multiply q with it")
    if q.dim() < 3 or not q.dim() == k.dim() == v.dim():
        raise ValueError(f"q, k and v must have the same 3 or more dims, got {q.dim()}, {k.dim()} and {v.dim()}")
    for name, tensor in (("k", k), ("v", v)):
        if tensor.shape[:-3] != q.shape[:-3]:
            got = f"{tuple(tensor.shape[:-3])} for {name} and {tuple(q.shape[:-3])} for q"
            raise ValueError(f"the dims before the heads must be the same, got {got}")
    if q.shape[-1] == 0:
        raise ValueError("head dim must be 1 or more, got 0")
    if not enable_gqa and q.shape[-3] != k.shape[-3]:
        raise ValueError(f"q has {q.shape[-3]} heads and k {k.shape[-3]}: different numbers need enable_gqa=True")
    # Dynamo cannot trace the question; what it compiles meets torch.func's own checks.
    if not torch.compiler.is_compiling() and functorch_differentiates():
        raise UnsupportedAttention(
            "flash_attention inside torch.func.grad, vjp or jvp is not implemented; use torch.autograd, or vmap alone"
        )


def _four_dims(tensor: Tensor) -> Tensor:
    """(..., heads, length, head_dim) -> (batch, heads, length, head_dim)."""
    return tensor.unsqueeze(0) if tensor.dim() == 3 else tensor.flatten(0, -4)


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    device = tensors[0].device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    # As autocast's own rule: float64 stays.
    return tuple(t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in tensors)

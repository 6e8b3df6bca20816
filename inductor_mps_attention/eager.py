"""Flash attention called directly, without torch.compile: the operator with SDPA's conventions around it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .operators import flash_forward
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
    if q.dim() < 3 or not q.dim() == k.dim() == v.dim():
        raise ValueError(f"q, k and v must have the same 3 or more dims, got {q.dim()}, {k.dim()} and {v.dim()}")
    if not enable_gqa and q.shape[-3] != k.shape[-3]:
        raise ValueError(f"q has {q.shape[-3]} heads and k {k.shape[-3]}: different numbers need enable_gqa=True")
    lead = q.shape[:-3]
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    band = CAUSAL if is_causal else FULL
    out, logsumexp = flash_forward(*map(_four_dims, (q, k, v)), None, scale, band.lower, band.upper)
    out, logsumexp = out.reshape(*lead, *out.shape[1:]), logsumexp.reshape(*lead, *logsumexp.shape[1:])
    return (out, logsumexp) if return_lse else out


def _four_dims(tensor: Tensor) -> Tensor:
    """(..., heads, length, head_dim) -> (batch, heads, length, head_dim)."""
    return tensor.unsqueeze(0) if tensor.dim() == 3 else tensor.flatten(0, -4)


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors)

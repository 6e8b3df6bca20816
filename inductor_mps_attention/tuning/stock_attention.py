"""Attention as PyTorch computes it in eager, which is what ours has to beat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from .results import MANUAL, SDPA
from .shape import Shape


def call_of(name: str, shape: Shape, direction: str, tensors: Mapping[str, Tensor]) -> Callable[[], object]:
    """A call that computes it: `name` SDPA or MANUAL, `tensors` q, k, v and grad_out."""
    leaves = [tensors[each].detach().requires_grad_(direction == "training") for each in ("q", "k", "v")]
    mask = _mask(shape)
    attend = {SDPA: _sdpa, MANUAL: _manual}[name]

    def call() -> object:
        out = attend(shape, mask, *leaves)
        return torch.autograd.grad(out, leaves, tensors["grad_out"]) if direction == "training" else out

    return call


def _sdpa(shape: Shape, mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    causal = shape.lower is None and shape.upper == 0
    grouped = shape.heads != shape.kv_heads
    return F.scaled_dot_product_attention(q, k, v, None if causal else mask, is_causal=causal, enable_gqa=grouped)


def _manual(shape: Shape, mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    group = shape.heads // shape.kv_heads
    if group > 1:
        k, v = (tensor.repeat_interleave(group, 1) for tensor in (k, v))
    scores = q @ k.mT / math.sqrt(shape.qk_head_dim)
    return (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(-1) @ v


def _mask(shape: Shape) -> Tensor | None:
    """True where a key is seen: (q_len, kv_len), or None where all are."""
    if shape.lower is None and shape.upper is None:
        return None
    offset = torch.arange(shape.kv_len, device="mps")[None, :] - torch.arange(shape.q_len, device="mps")[:, None]
    seen = torch.ones_like(offset, dtype=torch.bool)
    if shape.lower is not None:
        seen &= offset >= shape.lower
    return seen if shape.upper is None else seen & (offset <= shape.upper)

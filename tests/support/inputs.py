"""Seeded q, k, v and grad_out in the memory layouts that models have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shape:
    """One attention's sizes. v_head_dim is head_dim where it is not given."""

    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    queries: int = 33
    keys: int = 33
    head_dim: int = 64
    v_head_dim: int | None = None


LAYOUTS = ("contiguous", "transposed", "packed", "broadcast", "offset")


def make(
    shape: Shape, dtype: torch.dtype, *, layout: str = "contiguous", device: str = "mps", seed: int = 0
) -> list[Tensor]:
    """[q, k, v, grad_out], each (batch, heads, length, head_dim), standard normal, without gradients."""
    generator = torch.Generator().manual_seed(seed)
    v_head_dim = shape.v_head_dim or shape.head_dim
    sizes = [
        (shape.heads, shape.queries, shape.head_dim),
        (shape.kv_heads, shape.keys, shape.head_dim),
        (shape.kv_heads, shape.keys, v_head_dim),
        (shape.heads, shape.queries, v_head_dim),
    ]
    values = [torch.randn(shape.batch, *size, generator=generator).to(device, dtype) for size in sizes]
    return [_lay_out(value, layout) for value in values]


def _lay_out(value: Tensor, layout: str) -> Tensor:
    """The same values in another memory order."""
    batch, heads, length, head_dim = value.shape
    if layout == "contiguous":
        return value
    if layout == "transposed":  # a view of (batch, length, heads, head_dim)
        return value.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "packed":  # a slice of a wider projection: rows are 3 * heads * head_dim apart
        wide = value.new_full((batch, length, 3, heads, head_dim), float("nan"))
        wide[:, :, 1] = value.transpose(1, 2)
        return wide[:, :, 1].transpose(1, 2)
    if layout == "broadcast":  # every batch and head is the same memory: strides of 0
        return value[:1, :1].expand(batch, heads, length, head_dim)
    if layout == "offset":  # rows and start are no multiples of 16 bytes
        wide = value.new_full((batch, heads, length, head_dim + 1), float("nan"))
        wide[..., 1:] = value
        return wide[..., 1:]
    raise ValueError(f"layout must be one of {LAYOUTS}, got {layout!r}")

"""Tensors that lie far apart in memory that nobody has: offsets in elements go beyond 2**31."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

FAR = 2**31 + 64
BATCHES_FAR, HEADS_FAR, ROWS_FAR = (FAR, 160, 8), (160, FAR, 8), (16, 8, FAR // 4)
"""Outer strides of (2, 2, up to 20, 8)."""


def far_apart(folder: Path, name: str, near: Tensor, strides: tuple[int, int, int]) -> Tensor:
    """The same values in a sparse file, with these outer strides."""
    reach = sum((size - 1) * stride for size, stride in zip(near.shape, strides, strict=False)) + near.shape[-1]
    memory = torch.from_file(str(folder / name), shared=True, size=reach, dtype=near.dtype)
    return memory.as_strided(near.shape, (*strides, 1)).copy_(near)

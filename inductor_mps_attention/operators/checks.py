"""Are the operators' inputs one attention? The fakes and the kernels both ask here, so both refuse the same things.

Whether a Metal kernel exists for it is asked in metal.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

MAX_SCALE = torch.finfo(torch.float32).max / 2
"""Kernels multiply the scale with log2(e) in float32."""


def check_forward(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, scale: float) -> None:
    """Raises ValueError with the limit and the value got; shapes as in `flash_forward`."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(f"{name} must be (batch, heads, length, head_dim), got {tensor.dim()} dims")
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise ValueError(
                f"q, k and v must share dtype and device, got {q.dtype} on {q.device} for q"
                f" and {tensor.dtype} on {tensor.device} for {name}"
            )
    if q.dtype not in DTYPES:
        raise ValueError(f"dtype must be float32, float16 or bfloat16 (on the CPU also float64), got {q.dtype}")
    if not abs(scale) <= MAX_SCALE:
        raise ValueError(f"scale must be finite and at most {MAX_SCALE:.1e}, got {scale}")
    torch._check_value(k.shape[0] == q.shape[0], lambda: f"k has batch {k.shape[0]}, q has {q.shape[0]}")
    torch._check_value(v.shape[0] == q.shape[0], lambda: f"v has batch {v.shape[0]}, q has {q.shape[0]}")
    torch._check_value(k.shape[1] == v.shape[1], lambda: f"k has {k.shape[1]} heads, v has {v.shape[1]}")
    torch._check_value(k.shape[2] == v.shape[2], lambda: f"k has {k.shape[2]} keys, v has {v.shape[2]}")
    torch._check_value(k.shape[3] == q.shape[3], lambda: f"k has head dim {k.shape[3]}, q has {q.shape[3]}")
    torch._check_value(q.shape[3] > 0, lambda: f"head dim must be 1 or more, got {q.shape[3]}")
    _check_groups(q, k)
    if key_mask is not None:
        _check_key_mask(key_mask, k)


def check_backward(grad_out: Tensor, q: Tensor, v: Tensor, out: Tensor, logsumexp: Tensor) -> None:
    """Raises ValueError where a saved tensor or the incoming gradient doesn't fit q and v."""
    statistics = torch.float64 if q.dtype == torch.float64 else torch.float32
    for name, tensor, dtype in (
        ("grad_out", grad_out, q.dtype),
        ("out", out, q.dtype),
        ("logsumexp", logsumexp, statistics),
    ):
        if tensor.dtype != dtype or tensor.device != q.device:
            raise ValueError(f"{name} must be {dtype} on {q.device}, got {tensor.dtype} on {tensor.device}")
    expected = (*q.shape[:3], v.shape[3])
    for name, tensor in (("grad_out", grad_out), ("out", out)):
        torch._check_value(
            tuple(tensor.shape) == expected,
            lambda name=name, tensor=tensor: f"{name} must be {expected}, got {tuple(tensor.shape)}",
        )
    torch._check_value(
        tuple(logsumexp.shape) == tuple(q.shape[:3]),
        lambda: f"logsumexp must be {tuple(q.shape[:3])}, got {tuple(logsumexp.shape)}",
    )


def _check_groups(q: Tensor, k: Tensor) -> None:
    message = lambda: f"q has {q.shape[1]} heads, which is no multiple of the {k.shape[1]} heads of k and v"  # noqa: E731
    if isinstance(k.shape[1], int) and k.shape[1] == 0:
        torch._check_value(q.shape[1] == 0, message)
    else:
        torch._check_value(q.shape[1] % k.shape[1] == 0, message)


def _check_key_mask(key_mask: Tensor, k: Tensor) -> None:
    if key_mask.dtype != torch.bool:
        raise ValueError(f"key_mask must be bool (True: the key is seen), got {key_mask.dtype}")
    torch._check_value(
        tuple(key_mask.shape) == (k.shape[0], k.shape[2]),
        lambda: f"key_mask must be (batch, keys) = {(k.shape[0], k.shape[2])}, got {tuple(key_mask.shape)}",
    )

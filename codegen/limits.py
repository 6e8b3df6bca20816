"""What a device can hold: numbers only, no detection. The planner keeps every kernel within them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceLimits:
    """Limits that decide whether a plan can launch. Sizes are in bytes, lengths in rows."""

    threadgroup_bytes: int
    """Static threadgroup memory of one kernel; beyond it pipeline creation fails on the device."""
    max_threads: int
    """Threads of one threadgroup."""
    max_head_dim: int
    """Beyond it the accumulators of one query row leave the registers."""
    head_dim_step: int
    """Head dims are whole 8x8 fragments."""
    register_bytes: int
    """What fragments, accumulators and row statistics of one thread may take before the compiler spills."""


APPLE = DeviceLimits(
    threadgroup_bytes=32768,
    max_threads=1024,
    max_head_dim=128,
    head_dim_step=8,
    register_bytes=340,
)

MAX_LENGTH = 2**29
"""Longest q_len and kv_len: kernels compute `row + bound` in 32 bits."""

MAX_BOUND = 2**30
"""Bounds of the band are clamped here: no difference of two rows reaches it, so the band stays the same."""

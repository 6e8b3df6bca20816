"""What a device can hold: numbers only, no detection. The planner keeps every kernel within them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from .chips import Family
from .tuned import TunedPlan


@dataclass(frozen=True)
class DeviceLimits:
    """Limits that decide whether a plan can launch. Sizes are in bytes, lengths in rows."""

    threadgroup_bytes: int
    """Static threadgroup memory of one kernel; beyond it pipeline creation fails on the device."""
    max_threads: int
    """Threads of one threadgroup."""
    max_head_dim: int
    """Head dims are 1 to this, padded to whole 8x8 fragments: beyond, the accumulators of a row leave the registers."""
    register_bytes: int
    """What fragments, accumulators and row statistics of one thread may take before the compiler spills."""
    family: Family = Family.M1
    """Whose rows of the plan table are taken."""
    tuned: tuple[TunedPlan, ...] = ()
    """What measurements on this device chose; they go before the table."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: every launch looks its plans up by the limits."""
        return hash((self.threadgroup_bytes, self.max_threads, self.register_bytes, self.family, self.tuned))


APPLE = DeviceLimits(
    threadgroup_bytes=32768,
    max_threads=1024,
    max_head_dim=256,
    register_bytes=340,
)

MAX_LENGTH = 2**29
"""Longest q_len and kv_len: kernels compute `row + bound` in 32 bits."""

MAX_BOUND = 2**30
"""Bounds of the band are clamped here: no difference of two rows reaches it, so the band stays the same."""

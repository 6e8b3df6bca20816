"""Times -> a median and a spread. How times are taken is the engine's business."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """Seconds of single calls; `method` says how they were taken."""

    seconds: tuple[float, ...]
    method: str

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """(largest - least) / median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    def joined(self, other: Measurement) -> Measurement:
        """Both rounds as one."""
        return Measurement(self.seconds + other.seconds, self.method)

    def to_json(self) -> dict[str, Any]:
        return {"median_s": self.median, "spread": self.spread, "samples": len(self.seconds), "method": self.method}


def wall_clock(call: Callable[[], object], synchronize: Callable[[], None], seconds: float) -> Measurement:
    """Batches of calls by the host's clock, each batch long enough for it; at least three batches of one call."""
    call()
    synchronize()
    once = _timed(call, synchronize, 1)
    calls = max(1, min(1000, int(seconds / 5 / max(once, 1e-7))))
    batches = max(3, min(9, int(seconds / max(once * calls, 1e-7))))
    return Measurement(tuple(_timed(call, synchronize, calls) for _ in range(batches)), "host clock")


def _timed(call: Callable[[], object], synchronize: Callable[[], None], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    synchronize()
    return (time.perf_counter() - begin) / calls

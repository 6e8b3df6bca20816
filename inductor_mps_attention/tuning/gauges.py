"""How launches are gauged: a GPU by the clock, the simulator by what kernels count. Less is better in both."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from inductor_mps_attention.codegen import Step, ranking, render

from .. import simulator
from ..runtime import compiled
from . import stock_attention
from .machine import COUNTED, Machine
from .shape import Shape

_SECONDS = 0.1
"""Of measuring, for each candidate."""
_BATCHES = 5


class Gauge(Protocol):
    """`ours` gauges a call that launches the steps; None where it cannot run right. `stock` is what PyTorch takes, None
    where it is out of memory.
    """

    def ours(self, call: Callable[[], None], steps: Sequence[Step]) -> float | None: ...

    def stock(self, name: str, shape: Shape, direction: str, tensors: Mapping[str, Tensor]) -> float | None: ...


def gauge_of(machine: Machine) -> Gauge:
    """By the machine's unit."""
    return Counters() if machine.unit == COUNTED else Clock()


class Clock:
    """Seconds of one call, the median of batches that are long for the host's clock."""

    def ours(self, call: Callable[[], None], steps: Sequence[Step]) -> float | None:
        return self._seconds(call)

    def stock(self, name: str, shape: Shape, direction: str, tensors: Mapping[str, Tensor]) -> float | None:
        try:
            return self._seconds(stock_attention.call_of(name, shape, direction, tensors))
        except torch.OutOfMemoryError:
            return None

    def _seconds(self, call: Callable[[], object]) -> float:
        call()
        once = self._batch(call, 1)
        calls = max(1, int(_SECONDS / _BATCHES / max(once, 1e-6)))
        return statistics.median(self._batch(call, calls) for _ in range(_BATCHES))

    def _batch(self, call: Callable[[], object], calls: int) -> float:
        torch.mps.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        torch.mps.synchronize()
        return (time.perf_counter() - begin) / calls


class Counters:
    """Cycles that the counters of the launches are worth. The simulator counts bytes in check mode alone, which also
    finds a kernel's faults: one that has any is no candidate.
    """

    def ours(self, call: Callable[[], None], steps: Sequence[Step]) -> float | None:
        try:
            with simulator.options(check="full"):
                call()
                torch.mps.synchronize()
        except simulator.CheckError:
            return None
        kernels = [compiled.kernel(render(step.plan)) for step in steps]
        return math.fsum(ranking.counted_cycles(kernel.counters) for kernel in kernels)

    def stock(self, name: str, shape: Shape, direction: str, tensors: Mapping[str, Tensor]) -> float | None:
        """Nothing runs: each product and each pass over the scores reads and writes them, whoever computes it."""
        element_bytes = 4 if shape.dtype == "float32" else 2
        scores = shape.batch * shape.heads * shape.q_len * shape.kv_len
        products, passes = (2, 2) if direction == "forward" else (6, 6)
        moved = passes * scores * element_bytes
        counters = {
            "products": products * scores * (shape.qk_head_dim + shape.v_head_dim) // 2 // 512,
            "device_bytes_read": moved,
            "device_bytes_written": moved,
        }
        return ranking.counted_cycles(counters)

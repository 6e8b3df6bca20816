"""The simulator's errors, and what a checked launch reports. Knows nothing of torch, compilers or kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """One fault of a checked launch.

    `kind` is a short stable name ("race", "out_of_bounds", ...), `line` the 1-based line of the Metal source,
    0 where no line is known, `message` one sentence for people. `threads` are the parties, the one at `line`
    first, each as (threadgroup, thread in it); `other_line` is the other party's line. `place` says whose
    memory it is about, `offset` where in it, in bytes: ("buffer(0)", 12) or ("tile", 8) for a threadgroup array.
    """

    kind: str
    line: int
    message: str
    kernel: str = ""
    threads: tuple[tuple[int, int], ...] = ()
    other_line: int = 0
    place: str = ""
    offset: int = 0

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.message}"


class SimulatorError(RuntimeError):
    """Base class of the simulator's errors: the device or a shader cannot be built, installed or launched."""


class CheckError(SimulatorError):
    """A launch with `check="full"` has faults. `reports` holds them in the order in which they were found."""

    def __init__(self, message: str, reports: tuple[Report, ...] = ()):
        super().__init__("\n".join([message, *map(str, reports)]))
        self.reports = reports

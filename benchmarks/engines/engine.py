"""What an engine offers to a benchmark. The measuring loop is here; an engine says how one batch of calls is timed."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from inductor_mps_attention import runtime

from ..launches import LaunchLog
from ..measure import Measurement

Call = Callable[[], object]


class EngineUnavailable(RuntimeError):
    """This machine cannot run the engine; the message says what is missing."""


class Engine(abc.ABC):
    """Compiles Metal text and runs it on tensors of `device`."""

    name: str
    words: str
    """What every table and picture of this engine's results says of them."""
    device: str
    times_are_meaningful: bool
    """Whether times compare kernels; else counters alone do."""

    def __init__(self) -> None:
        self.log = LaunchLog()
        self._libraries: dict[str, Any] = {}

    @abc.abstractmethod
    def facts(self) -> dict[str, Any]:
        """Name and size of the hardware, and the settings of the engine."""

    @abc.abstractmethod
    def compile_shader(self, text: str) -> Any:
        """A library of the text's kernels, which take tensors of `device`."""

    def logged_library(self, text: str) -> Any:
        """The same, with launches in the log; each text is compiled once."""
        if text not in self._libraries:
            self._libraries[text] = self.log.wrapped(self.compile_shader)(text)
        return self._libraries[text]

    @abc.abstractmethod
    def measure(self, call: Call, seconds: float) -> Measurement:
        """Times of single calls, taking about `seconds` in all."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Waits for the device."""

    @abc.abstractmethod
    def peak_bytes(self, call: Call) -> int:
        """The most device memory in use during the call, beyond what was in use before."""

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """A block in which the project's kernels are compiled by this engine and logged."""
        before = torch.mps.compile_shader
        torch.mps.compile_shader = self.log.wrapped(self.compile_shader)
        runtime.clear()
        try:
            yield
        finally:
            torch.mps.compile_shader = before
            runtime.clear()

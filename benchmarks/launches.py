"""Which kernels a piece of work launches: a compile_shader that remembers, around that of an engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class LaunchLog:
    """Kernels by name while it records, with their facts and the sums of their counters, if the engine counts."""

    def __init__(self) -> None:
        self.recording = False
        self.kernels: dict[str, dict[str, Any]] = {}
        self.counters: dict[str, int] = {}

    def wrapped(self, compile_shader: Callable[..., Any]) -> Callable[..., Any]:
        """`compile_shader` whose kernels tell this log of their launches."""
        return lambda *args, **options: _Library(compile_shader(*args, **options), self)

    @contextlib.contextmanager
    def record(self) -> Iterator[LaunchLog]:
        """A block whose launches are kept, those of earlier blocks forgotten."""
        self.kernels, self.counters, self.recording = {}, {}, True
        try:
            yield self
        finally:
            self.recording = False

    def add(self, name: str, kernel: Any) -> None:
        facts = self.kernels.setdefault(name, _facts(kernel) | {"launches": 0})
        facts["launches"] += 1
        for counter, count in getattr(kernel, "counters", {}).items():
            self.counters[counter] = self.counters.get(counter, 0) + int(count)


def _facts(kernel: Any) -> dict[str, Any]:
    wanted = {
        "threadgroup_bytes": "static_thread_group_memory_length",
        "registers": "registers",
        "spilled_bytes": "spilled_bytes",
    }
    return {name: getattr(kernel, key) for name, key in wanted.items() if hasattr(kernel, key)}


class _Library:
    def __init__(self, library: Any, log: LaunchLog):
        self._library = library
        self._log = log

    def __getattr__(self, name: str) -> _Kernel:
        return _Kernel(name, getattr(self._library, name), self._log)


class _Kernel:
    def __init__(self, name: str, kernel: Any, log: LaunchLog):
        self._name = name
        self._kernel = kernel
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def __call__(self, *args: Any, **options: Any) -> None:
        self._kernel(*args, **options)
        if self._log.recording:
            self._log.add(self._name, self._kernel)

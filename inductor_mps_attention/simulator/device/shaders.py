"""Metal text that PyTorch hands to its MPS build -> the simulator's Metal engine, under the options in force.

PyTorch and Inductor come here through `torch.mps.compile_shader`. Every source is kept, for tests to read.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from inductor_mps_attention.simulator.device import installation

Check = Literal["off", "full"]


@dataclass(frozen=True)
class Options:
    """See `options()`."""

    poison: bool = False
    check: Check = "off"
    check_only: Callable[[str], bool] | None = None
    compile_options: dict[str, Any] = field(default_factory=dict)


_lock = threading.Lock()
_sources: list[str] = []
_options = Options()


@contextlib.contextmanager
def options(
    *,
    poison: bool = False,
    check: Check = "off",
    check_only: Callable[[str], bool] | None = None,
    **compile_options: Any,
) -> Iterator[None]:
    """Options of the simulated device, for all threads, until the block ends.

    poison           fresh device memory is filled with 0xFF bytes: NaN in floating point, -1 in integers
    check            how launches in the block are checked, also those of shaders that were compiled before it: a
                     launch under other options compiles its shader again
    check_only       the sources that `check` is for, by their text; None: all. PyTorch's own kernels store
                     the same value from several threads, which a check may report
    compile_options  further keywords of `simulator.compile_shader`
    """
    global _options
    core = installation.installed_core()
    before, chosen = _options, Options(poison, check, check_only, compile_options)
    _options = chosen
    core.set_poison(chosen.poison)
    try:
        yield
    finally:
        _options = before
        core.set_poison(before.poison)


def shaders() -> tuple[str, ...]:
    """The Metal sources compiled through the device since the last `reset_shaders()`, oldest first."""
    with _lock:
        return tuple(_sources)


def reset_shaders() -> None:
    """Forgets the sources seen so far."""
    with _lock:
        _sources.clear()


def compile_for_device(source: str) -> DeviceLibrary:
    """What `torch.mps.compile_shader` returns: a library whose attributes are the kernels."""
    with _lock:
        _sources.append(source)
    return DeviceLibrary(source)


class DeviceLibrary:
    """The kernels of one text, as attributes. Callers keep kernels; so options are looked at when one is launched."""

    def __init__(self, source: str):
        self._source = source
        self._compiled: list[tuple[Options, Any]] = []
        self._under(_options)

    def __getattr__(self, name: str) -> DeviceKernel:
        if name.startswith("__"):
            raise AttributeError(name)
        getattr(self._under(_options), name)  # raises for a name that is no kernel
        return DeviceKernel(self, name)

    def __dir__(self) -> list[str]:
        return dir(self._under(_options))

    def _under(self, active: Options) -> Any:
        """The compiled library for these options."""
        for options_then, library in self._compiled:
            if options_then is active:
                return library
        library = self._compile(active)
        self._compiled.append((active, library))
        return library

    def _compile(self, active: Options) -> Any:
        from inductor_mps_attention.simulator.metal import compile_shader

        checked = active.check_only is None or active.check_only(self._source)
        return compile_shader(self._source, check=active.check if checked else "off", **active.compile_options)


class DeviceKernel:
    """One kernel of a DeviceLibrary: called as `torch.mps`'s are, with the attributes of the Metal engine's."""

    def __init__(self, library: DeviceLibrary, name: str):
        self._library, self._name = library, name
        self._options: Options | None = None
        self._kernel: Any = None

    def __call__(self, *args: Any, **keywords: Any) -> None:
        for arg in args:
            # PyTorch passes the value of one without dimensions.
            if isinstance(arg, torch.Tensor) and arg.device.type == "cpu" and arg.dim():
                raise RuntimeError("Passed CPU tensor to MPS op")
        self._current()(*args, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._current(), name)

    def _current(self) -> Any:
        active = _options
        if self._options is not active:
            self._kernel = getattr(self._library._under(active), self._name)
            self._options = active
        return self._kernel

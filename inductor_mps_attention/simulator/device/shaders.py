"""Metal text that PyTorch hands to its MPS build -> the simulator's Metal engine, under the options in force.

PyTorch and Inductor come here through `torch.mps.compile_shader`. Every source is kept, for tests to read.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

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
    check            how launches of shaders that are compiled in the block are checked, also after the block;
                     Inductor compiles its shaders at the first call of a compiled function
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


def compile_for_device(source: str) -> Any:
    """What `torch.mps.compile_shader` returns: a library whose attributes are the kernels."""
    from inductor_mps_attention.simulator.metal import compile_shader

    with _lock:
        _sources.append(source)
    active = _options
    checked = active.check_only is None or active.check_only(source)
    return compile_shader(source, check=active.check if checked else "off", **active.compile_options)

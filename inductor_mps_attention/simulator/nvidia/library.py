"""compile_shader for an NVIDIA GPU, and the check of a text that needs no GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..metal.compiler import KERNELS_AT_ONCE
from ..metal.translate import ConstantValue
from . import compiler, driver
from .compiler import Options, Request, inlined_by_type
from .driver import LoadedModule
from .kernel import Kernel


class ShaderLibrary:
    """The kernels of one Metal text on the GPU, as attributes and as items by their host names."""

    def __init__(self, wanted: Request):
        self._request = wanted
        self._entries = {entry.name: entry for entry in wanted.translation.entries}
        self._modules: dict[tuple[tuple[str, int], ...], LoadedModule] = {}
        self._kernels: dict[str, Kernel] = {}
        self._by_type = {entry.symbol: inlined_by_type(entry) for entry in wanted.translation.entries}
        self._at_once = len(self._entries) <= KERNELS_AT_ONCE
        self._module(self._by_type if self._at_once else {})

    def __getattr__(self, name: str) -> Kernel:
        entries = self.__dict__.get("_entries", {})
        if name not in entries:
            raise AttributeError(f"no kernel {name!r} in this Metal text; it has {', '.join(entries)}")
        return self[name]

    def __getitem__(self, name: str) -> Kernel:
        entry = self._entries[name]
        if name not in self._kernels:
            self._kernels[name] = Kernel(entry, lambda inlined: self._module_of(entry.symbol, inlined))
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._entries]

    def _module_of(self, symbol: str, inlined: int) -> LoadedModule:
        """The module of all kernels where it has this one, else one of this kernel alone."""
        if self._at_once and inlined == self._by_type[symbol]:
            return self._module(self._by_type)
        return self._module({symbol: inlined})

    def _module(self, inlined: Mapping[str, int]) -> LoadedModule:
        key = tuple(sorted(inlined.items()))
        if key not in self._modules:
            self._modules[key] = LoadedModule(compiler.build(self._request, inlined))
        return self._modules[key]


def compile_shader(
    source: str,
    *,
    function_constants: Mapping[int | str, ConstantValue] | None = None,
    include_dirs: Sequence[str] = (),
    defines: Sequence[str] = (),
    strict: bool = True,
    options: Options | None = None,
    **choices: Any,
) -> ShaderLibrary:
    """Compiles a Metal text for this machine's NVIDIA GPU. Raises ShaderCompileError with the line of the text. A text
    of more than 64 kernels is compiled kernel by kernel, each when it is first asked for.

    `choices` are fields of `Options`, which see; without an architecture it is the GPU's.
    """
    chosen = replace(options or Options(), **choices)
    if "architecture" not in choices and options is None:
        major, minor = driver.facts(driver.current_device()).capability
        chosen = replace(chosen, architecture=f"{major}{minor}")
    return ShaderLibrary(
        compiler.request(
            source,
            chosen,
            function_constants=function_constants,
            include_dirs=include_dirs,
            defines=defines,
            strict=strict,
        )
    )


def compile_check(
    source: str,
    *,
    function_constants: Mapping[int | str, ConstantValue] | None = None,
    options: Options | None = None,
    **choices: Any,
) -> tuple[str, ...]:
    """Translates and compiles a Metal text without a GPU; gives the names of its kernels.

    Raises ShaderCompileError with the line of what NVRTC refuses, SimulatorError where NVRTC is not installed. The
    image is kept on disk, so a later `compile_shader` of the same text and options, here or where the cache is copied
    to, compiles nothing. `choices` are fields of `Options`.
    """
    wanted = compiler.request(source, replace(options or Options(), **choices), function_constants=function_constants)
    entries = wanted.translation.entries
    compiler.build(wanted, {entry.symbol: inlined_by_type(entry) for entry in entries})
    return tuple(entry.name for entry in entries)

"""compile_shader: Metal text -> a library whose attributes are its kernels. The simulator's
torch.mps.compile_shader.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from ..errors import CheckError, Report
from .compiler import Module, Request, build_module, kernel_module
from .entries import LARGEST_SUFFIX, SIZE_SUFFIX, Entry
from .errors import UnknownKernelError
from .kernel import THREADGROUP_MEMORY_LIMIT, Kernel, Schedule
from .launch import runtime
from .translate import ConstantValue


class ShaderLibrary:
    """The kernels of one Metal text, as attributes and as items by their host names; iteration gives the
    names.
    """

    def __init__(self, module: Module, request: Request, schedule: Schedule):
        runtime()
        self._module = module
        self._request = request
        self._schedule = schedule
        self._entries = {entry.name: entry for entry in module.entries}
        self._kernels: dict[str, Kernel] = {}

    def __getattr__(self, name: str) -> Kernel:
        entries = self.__dict__.get("_entries", {})
        if name not in entries:
            message = f"Failed to create function state object for: {name}: no kernel {name!r} in this Metal text"
            raise UnknownKernelError(f"{message}; it has {', '.join(entries)}")
        return self[name]

    def __getitem__(self, name: str) -> Kernel:
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = self._load(self._entries[name])
        return kernel

    def _load(self, entry: Entry) -> Kernel:
        """Where Metal makes the pipeline: too much threadgroup memory raises CheckError."""
        module = kernel_module(self._module, self._request, entry)
        library = ctypes.CDLL(str(module.library))
        address = ctypes.cast(getattr(library, entry.symbol), ctypes.c_void_p).value
        assert address is not None
        size = getattr(library, entry.symbol + SIZE_SUFFIX)()
        if size > THREADGROUP_MEMORY_LIMIT:
            line = getattr(library, entry.symbol + LARGEST_SUFFIX)()
            raise CheckError(f"kernel {entry.name} cannot be used", (_too_much_memory(entry.name, line, size),))
        return Kernel(entry, module, address, size, self._schedule)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._entries]


def _too_much_memory(name: str, line: int, size: int) -> Report:
    message = f"Threadgroup memory size ({size}) exceeds the maximum threadgroup memory allowed"
    message = f"kernel {name}: {message} ({THREADGROUP_MEMORY_LIMIT}); its largest array is here"
    return Report("threadgroup_memory", line, message, kernel=name)


def compile_shader(
    source: str,
    *,
    function_constants: Mapping[int | str, ConstantValue] | None = None,
    include_dirs: Sequence[str] = (),
    defines: Sequence[str] = (),
    check: Literal["off", "full"] = "off",
    strict: bool = True,
    order: str = "forward",
    workers: int | None = None,
) -> ShaderLibrary:
    """Compiles a Metal text for the CPU. Raises ShaderCompileError with the line of the text.

    `function_constants` gives values by index or by name; a constant without a value is undefined, as Metal
    calls it. `include_dirs` are folders of further headers (torch's <c10/metal/...> are always found),
    `defines` are macros, as "NAME" or "NAME=value".

    With `check="full"` launches run on isolated copies of their buffers, on one core, with every access
    checked, and a fault raises CheckError. A kernel that declares more than 32 KiB of threadgroup memory raises
    it where it is asked for, checked or not. A text of more than 64 kernels is compiled kernel by kernel, each
    when it is first asked for; errors inside its templates are found then. `strict` refuses what this compiler
    accepts and Apple's does not, as far as tokens and overloads show it.

    `order` says how threads take turns: "forward", "reverse" or "random:seed". `workers` is the number of
    cores to use; by default all, and one for a text with atomics, so that results are the same each time.
    """
    if check not in ("off", "full"):
        raise ValueError(f"check is {check!r}; it is 'off' or 'full'")
    schedule = Schedule.parse(order, workers)
    constants = dict(function_constants or {})
    request = Request(source, constants, tuple(include_dirs), tuple(defines), check == "full", strict)
    return ShaderLibrary(build_module(request), request, schedule)

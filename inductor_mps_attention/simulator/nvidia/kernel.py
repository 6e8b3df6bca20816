"""One kernel of a compiled Metal text on an NVIDIA GPU, called as a kernel of torch.mps.compile_shader is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import CheckError, Report
from ..metal.arguments import ArgumentCasts, triple
from ..metal.entries import Entry
from ..metal.errors import ShaderLaunchError
from . import driver
from .arguments import MAX_DYNAMIC_ARRAYS, inlined_bits, packed, struct_bytes
from .compiler import inlined_by_type
from .driver import Function, FunctionAttribute, LoadedModule
from .target import buffer_count

SIMDGROUP_WIDTH = 32
THREADGROUP_MEMORY_LIMIT = 32768  # Apple's, not this GPU's
_LARGEST_GRID = 2**31 - 1


class Kernel:
    """A kernel. Calling it starts it on torch's current stream, or on the default one; results are there once the GPU
    is synchronised. Faults of a launch show at the next synchronisation.
    """

    def __init__(self, entry: Entry, build: Callable[[int], LoadedModule]):
        self.name = entry.name
        self._entry = entry
        self._build = build
        self._buffers = buffer_count(entry)
        self._required = tuple(p.index for p in entry.parameters if p.kind == "A_BUF" and not p.optional)
        self._dynamic = tuple(p.index for p in entry.parameters if p.kind == "A_TG")
        self._functions: dict[int, Function] = {}
        self._by_type = inlined_by_type(entry)
        self._max_threads = min(entry.max_threads, self._attribute(FunctionAttribute.MAX_THREADS))
        self._static_bytes = self._attribute(FunctionAttribute.SHARED_BYTES)
        if self._static_bytes > THREADGROUP_MEMORY_LIMIT:
            message = f"Threadgroup memory size ({self._static_bytes}) exceeds the maximum threadgroup memory allowed"
            report = Report("threadgroup_memory", 0, f"{message} ({THREADGROUP_MEMORY_LIMIT})", kernel=self.name)
            raise CheckError(f"kernel {self.name} cannot be used", (report,))

    @property
    def max_threads_per_threadgroup(self) -> int:
        return self._max_threads

    @property
    def thread_execution_width(self) -> int:
        return SIMDGROUP_WIDTH

    @property
    def static_thread_group_memory_length(self) -> int:
        """Bytes of the threadgroup variables that the kernel declares."""
        return self._static_bytes

    @property
    def registers(self) -> int:
        """32-bit registers a thread takes on this GPU."""
        return self._attribute(FunctionAttribute.REGISTERS)

    @property
    def spilled_bytes(self) -> int:
        """Bytes of a thread that found no register: spills and arrays with indices known only at run time."""
        return self._attribute(FunctionAttribute.LOCAL_BYTES)

    @property
    def counters(self) -> dict[str, int]:
        """This engine counts nothing."""
        return {}

    def __repr__(self) -> str:
        return f"<Metal kernel {self.name} on an NVIDIA GPU>"

    def __call__(
        self,
        *args: object,
        threads: int | Sequence[int] | None = None,
        group_size: int | Sequence[int] | None = None,
        arg_casts: ArgumentCasts = None,
        threadgroup_bytes: Mapping[int, int] | None = None,
    ) -> None:
        """Starts the kernel over a grid of `threads` in groups of `group_size`; see the CPU engine's `Kernel`.

        The first call with another pattern of tensors and numbers compiles the text once more.
        """
        self._check_given(args)
        grid, group = self._sizes(args, threads, group_size)
        if 0 in grid:
            return
        groups = tuple(-(-whole // part) for whole, part in zip(grid, group, strict=True))
        blocks = groups[0] * groups[1] * groups[2]
        if blocks > _LARGEST_GRID:
            raise ShaderLaunchError(f"kernel {self.name}: {blocks} threadgroups; this GPU takes {_LARGEST_GRID}")
        function = self._function(inlined_bits(args))
        offsets, dynamic_bytes = self._dynamic_arrays(threadgroup_bytes or {})
        if dynamic_bytes:
            function.allow_dynamic_bytes(dynamic_bytes)
        block = packed(args, self._buffers, (*groups, *group, *grid), offsets, arg_casts)
        simdgroups = -(-group[0] * group[1] * group[2] // SIMDGROUP_WIDTH)
        function.launch(blocks, simdgroups * SIMDGROUP_WIDTH, dynamic_bytes, _stream(), block)

    def _attribute(self, attribute: FunctionAttribute) -> int:
        return self._function(self._by_type).attribute(attribute)

    def _function(self, inlined: int) -> Function:
        found = self._functions.get(inlined)
        if found is None:
            found = self._build(inlined).function(self._entry.symbol)
            expected, size = struct_bytes(self._buffers, inlined), found.argument_bytes()
            if size != expected:
                raise ShaderLaunchError(
                    f"kernel {self.name}: its arguments have {size} bytes, and {expected} in Python"
                )
            self._functions[inlined] = found
        return found

    def _check_given(self, args: tuple[object, ...]) -> None:
        if len(args) > self._buffers:
            raise ShaderLaunchError(f"kernel {self.name}: {len(args)} arguments; it has {self._buffers} buffers")
        for index in self._required:
            if index >= len(args) or args[index] is None:
                raise ShaderLaunchError(f"kernel {self.name}: buffer {index} is not given")

    def _sizes(
        self, args: tuple[object, ...], threads: int | Sequence[int] | None, group_size: int | Sequence[int] | None
    ) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        if threads is None:
            first: Any = next((arg for arg in args if hasattr(arg, "numel")), None)
            if first is None:
                raise ShaderLaunchError(f"kernel {self.name}: without a tensor argument, `threads` must be given")
            threads = int(first.numel())
        grid = triple(threads, "threads")
        group = triple(group_size, "group_size") if group_size is not None else (self._max_threads, 1, 1)
        size = group[0] * group[1] * group[2]
        if not 1 <= size <= self._max_threads:
            raise ShaderLaunchError(
                f"kernel {self.name}: group_size {group_size} is {size} threads; it takes 1 to {self._max_threads}"
            )
        return grid, group

    def _dynamic_arrays(self, sizes: Mapping[int, int]) -> tuple[list[int], int]:
        """Where each [[threadgroup(n)]] array starts, and the bytes of all of them."""
        offsets, total = [0] * MAX_DYNAMIC_ARRAYS, 0
        for index in self._dynamic:
            if index not in sizes:
                raise ShaderLaunchError(f"kernel {self.name}: threadgroup_bytes lacks index {index}")
            offsets[index] = total
            total += -(-sizes[index] // 16) * 16
        if total + self._static_bytes > THREADGROUP_MEMORY_LIMIT:
            whole = total + self._static_bytes
            raise ShaderLaunchError(f"kernel {self.name}: {whole} bytes of threadgroup memory; Apple's limit is 32768")
        return offsets, total


def _stream() -> int:
    """torch's current stream where torch uses CUDA, so that launches keep their order with its work."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_stream().cuda_stream)
    driver.current_device()
    return 0

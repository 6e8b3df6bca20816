"""One kernel of a compiled Metal text, called as a kernel of torch.mps.compile_shader is."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ..errors import CheckError, Report
from .arguments import ERROR_BUFFER_BYTES, ArgumentCasts, ArgumentMemory, is_tensor_list, single_precision, triple
from .compiler import Module
from .entries import Entry
from .errors import ShaderAssertionError, ShaderLaunchError, ShaderSizeError
from .isolation import IsolatedBuffers
from .launch import (
    COUNTERS,
    MAX_BUFFERS,
    ORDER_FIBERLESS,
    ORDER_FORWARD,
    ORDER_RANDOM,
    ORDER_REVERSE,
    Launch,
    module_range,
    runtime,
)
from .reports import read_reports

MAX_THREADS_PER_THREADGROUP = 1024
SIMDGROUP_WIDTH = 32
THREADGROUP_MEMORY_LIMIT = 32768
_STACK_KIB = 128
# Below this many threads a launch is over before other workers have started.
_THREADS_WORTH_A_WORKER = 16384


@dataclass(frozen=True)
class Schedule:
    """How threads take turns, and over how many cores threadgroups are spread (0: all, 1: deterministic also
    with float atomics).
    """

    order: int = ORDER_FORWARD
    seed: int = 0
    workers: int = 0

    @staticmethod
    def parse(order: str, workers: int | None = None) -> Schedule:
        """From "forward", "reverse" or "random:seed"."""
        name, _, seed = order.partition(":")
        orders = {"forward": ORDER_FORWARD, "reverse": ORDER_REVERSE, "random": ORDER_RANDOM}
        if name not in orders or (seed and not seed.isdigit()):
            raise ShaderLaunchError(f"order {order!r}: it is 'forward', 'reverse' or 'random:seed'")
        return Schedule(orders[name], int(seed or 0), workers or 0)


class _Call:
    """The memory of one call in flight: the launch struct, and the scalars."""

    def __init__(self) -> None:
        self.launch = Launch()
        self.buffers = self.launch.buffers
        self.grid = self.launch.grid
        self.group = self.launch.group
        self.address = ctypes.addressof(self.launch)
        self._results = self.address + Launch.report_count.offset
        self.memory = ArgumentMemory()
        self.sizes: tuple[object, ...] = ()

    def clear_results(self) -> None:
        """The runtime adds to the reports and counters that it finds."""
        ctypes.memset(self._results, 0, Launch.reports.offset - Launch.report_count.offset)


class Kernel:
    """A kernel. Calling it runs it to its end; results are in the tensors when the call returns."""

    def __init__(self, entry: Entry, module: Module, address: int, threadgroup_bytes: int, schedule: Schedule):
        self.name = entry.name
        self._entry = entry
        self._module = module
        self._address = address
        self._threadgroup_bytes = threadgroup_bytes
        self._schedule = schedule
        buffers = [parameter for parameter in entry.parameters if parameter.kind == "A_BUF"]
        self._required = tuple(parameter.index for parameter in buffers if not parameter.optional)
        self._writable = {parameter.index: parameter.writable for parameter in buffers}
        self._dynamic = tuple(p.index for p in entry.parameters if p.kind == "A_TG")
        self._range = module_range(address)
        self._fiberless = entry.name in module.independent and not module.checked and schedule.order == ORDER_FORWARD
        self._dispatch = runtime().msl_dispatch
        self._idle: list[_Call] = []
        self._last: Launch | None = None
        self.notes: tuple[Report, ...] = ()

    @property
    def max_threads_per_threadgroup(self) -> int:
        return self._entry.max_threads

    @property
    def thread_execution_width(self) -> int:
        return SIMDGROUP_WIDTH

    @property
    def static_thread_group_memory_length(self) -> int:
        """Bytes of the threadgroup variables that the kernel declares."""
        return self._threadgroup_bytes

    @property
    def counters(self) -> dict[str, int]:
        """What the last launch did. Bytes of memory are counted with check="full" only, else they are 0."""
        if self._last is None:
            return {}
        launch = self._last
        counters = {name: int(launch.counters[index]) for index, name in enumerate(COUNTERS)}
        counters["threads"] = launch.grid[0] * launch.grid[1] * launch.grid[2]
        counters["threadgroup_bytes"] = int(launch.threadgroup_bytes)
        return counters

    def __repr__(self) -> str:
        parameters = ", ".join(parameter.text for parameter in self._entry.parameters)
        return f"<Metal kernel {self.name}({parameters})>"

    def __call__(
        self,
        *args: object,
        threads: int | Sequence[int] | None = None,
        group_size: int | Sequence[int] | None = None,
        arg_casts: ArgumentCasts = None,
        error_buf_idx: int | None = None,
        threadgroup_bytes: Mapping[int, int] | None = None,
    ) -> None:
        """Runs the kernel over a grid of `threads` in groups of `group_size`.

        Without `threads` there is one for each element of the first tensor. The last groups of a grid that
        `group_size` does not divide are smaller. Raises ShaderLaunchError for a call that Metal does not
        allow, CheckError for a fault found while it runs, ShaderAssertionError if the kernel wrote to its
        error buffer (argument `error_buf_idx`). `threadgroup_bytes` gives the sizes of [[threadgroup(n)]]
        arrays by n; torch.mps.compile_shader has no way to set them.
        """
        call = self._idle.pop() if self._idle else self._new_call()
        try:
            if threads is None:
                threads = self._default_threads(args)
            sizes = (
                threads if isinstance(threads, int) else tuple(threads),
                group_size if group_size is None or isinstance(group_size, int) else tuple(group_size),
            )
            if sizes != call.sizes:
                self._set_sizes(call, *sizes)
                call.sizes = sizes
            if self._dynamic or threadgroup_bytes:
                self._set_dynamic(call, threadgroup_bytes or {})
            args = single_precision(args)
            if self._module.checked:
                self._run_checked(call, args, arg_casts, error_buf_idx)
            else:
                self._bind(call, args, arg_casts, error_buf_idx)
                self._run(call)
            if error_buf_idx is not None:
                self._raise_reported(call)
        finally:
            self._idle.append(call)

    def _new_call(self) -> _Call:
        call = _Call()
        launch = call.launch
        launch.entry = self._address
        launch.order = ORDER_FIBERLESS if self._fiberless else self._schedule.order
        launch.seed = self._schedule.seed
        launch.check = self._module.checked
        launch.poison = 1
        launch.threadgroup_limit = THREADGROUP_MEMORY_LIMIT
        launch.stack_kib = _STACK_KIB
        launch.module_low, launch.module_high = self._range
        return call

    def _default_threads(self, args: tuple[object, ...]) -> int:
        first = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
        if first is None:
            raise ShaderLaunchError(f"kernel {self.name}: without a tensor argument, `threads` must be given")
        return first.numel()

    def _set_sizes(
        self,
        call: _Call,
        threads: int | tuple[int, ...],
        group_size: int | tuple[int, ...] | None,
    ) -> None:
        grid = triple(threads, "threads")
        group = self._default_group(threads) if group_size is None else triple(group_size, "group_size")
        dimensions = [1 if isinstance(sizes, int) else len(sizes) for sizes in (threads, group_size or threads)]
        if dimensions[0] != dimensions[1]:
            raise ShaderLaunchError(
                f"kernel {self.name}: threads {threads} and group_size {group_size} differ in dimensions"
            )
        size = group[0] * group[1] * group[2]
        if not 1 <= size <= self._entry.max_threads:
            raise ShaderSizeError(
                f"kernel {self.name}: Threadgroup size exceeds {self._entry.max_threads} limit, or is 0: "
                f"{group} has {size} threads; this kernel takes 1 to {self._entry.max_threads}"
            )
        call.grid[:] = grid
        call.group[:] = group
        call.launch.workers = self._workers(grid, size)

    def _default_group(self, threads: int | tuple[int, ...]) -> tuple[int, int, int]:
        """The largest group; of a grid in one dimension no larger than that, as PyTorch's."""
        largest = self._entry.max_threads
        if isinstance(threads, tuple) and len(threads) > 1:
            return largest, 1, 1
        return max(1, min(largest, triple(threads, "threads")[0])), 1, 1

    def _set_dynamic(self, call: _Call, sizes: Mapping[int, int]) -> None:
        if set(sizes) != set(self._dynamic):
            raise ShaderLaunchError(
                f"kernel {self.name}: threadgroup_bytes gives the sizes of the arrays {sorted(sizes)}; "
                f"the kernel has [[threadgroup(n)]] for n in {sorted(self._dynamic)}"
            )
        total = self._threadgroup_bytes + sum(-(-size // 16) * 16 for size in sizes.values())
        if total > THREADGROUP_MEMORY_LIMIT:
            raise ShaderLaunchError(
                f"kernel {self.name}: Threadgroup memory size ({total}) exceeds the maximum threadgroup memory allowed "
                f"({THREADGROUP_MEMORY_LIMIT}): {self._threadgroup_bytes} bytes declared, the rest asked for"
            )
        for index, size in sizes.items():
            call.launch.dynamic_threadgroup[index] = size

    def _workers(self, grid: tuple[int, int, int], group_threads: int) -> int:
        wanted = self._schedule.workers or _cores()
        total = grid[0] * grid[1] * grid[2]
        if wanted == 1 or self._module.checked or total <= group_threads:
            return 1
        if self._module.has_atomics and not self._schedule.workers:
            return 1  # the order of float additions would differ from run to run
        return 1 if self._fiberless and total < _THREADS_WORTH_A_WORKER else wanted

    def _bind(self, call: _Call, args: tuple[object, ...], arg_casts: ArgumentCasts, error_buf_idx: int | None) -> None:
        count, buffers = len(args), call.buffers
        if count > MAX_BUFFERS:
            raise ShaderLaunchError(f"kernel {self.name}: {count} arguments; Metal has {MAX_BUFFERS} buffers")
        for index, arg in enumerate(args):
            if isinstance(arg, torch.Tensor):
                buffers[index] = arg.data_ptr()
            else:
                buffers[index] = None if arg is None else call.memory.place(index, arg, arg_casts)
        if error_buf_idx is not None:
            buffers[error_buf_idx] = call.memory.error_buffer()
        for index in self._required:
            if (index >= count or args[index] is None) and index != error_buf_idx:
                raise ShaderLaunchError(f"kernel {self.name}: buffer {index} ({self._text(index)}) is not given")

    def _text(self, index: int) -> str:
        parameters = self._entry.parameters
        return next(p.text for p in parameters if p.kind == "A_BUF" and p.index == index)

    def _run(self, call: _Call) -> None:
        launch = call.launch
        self._last = launch
        call.clear_results()
        self.notes = ()
        if launch.grid[0] and launch.grid[1] and launch.grid[2] and self._dispatch(call.address):
            self._raise_faults(launch)

    def _run_checked(
        self, call: _Call, args: tuple[object, ...], arg_casts: ArgumentCasts, error_buf_idx: int | None
    ) -> None:
        self._bind(call, args, arg_casts, error_buf_idx)
        isolated = IsolatedBuffers()
        for index, arg in enumerate(args):
            writable = self._writable.get(index, False)
            if isinstance(arg, torch.Tensor):
                isolated.add_tensor(index, arg, writable)
            elif is_tensor_list(arg):
                isolated.add_tensors(index, arg, call.buffers[index] or 0)
            elif arg is not None:
                isolated.add_bytes(index, call.buffers[index] or 0, call.memory.sizes[index], 1)
        if error_buf_idx is not None:
            isolated.add_bytes(error_buf_idx, call.buffers[error_buf_idx] or 0, ERROR_BUFFER_BYTES, 1, True)
        isolated.bind(call.launch)
        try:
            self._run(call)
        finally:
            isolated.copy_back()

    def _raise_faults(self, launch: Launch) -> None:
        faults, notes = read_reports(launch, self._module.library, self._range[0], self.name)
        self.notes = tuple(notes)
        if faults:
            found = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
            raise CheckError(f"kernel {self.name}: {found} in this launch", tuple(faults))

    def _raise_reported(self, call: _Call) -> None:
        messages = call.memory.reported_errors()
        if messages:
            raise ShaderAssertionError(f"kernel {self.name}: {messages[0]} ({len(messages)} reported)")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

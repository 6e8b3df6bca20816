"""One launch as a node of Inductor's graph: it writes into buffers that Inductor allocates, reuses and frees.

The same node gives the Python wrapper's call and the text of cpp_wrapper and AOTInductor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.utils import get_free_symbols
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from inductor_mps_attention.codegen import KernelSource, Role

CPP_ENTRY = "generated_kernel"
"""The one kernel name that cpp_wrapper looks up in a library."""


@dataclass(frozen=True)
class Launch:
    """What is called: the text, the integers that follow the tensors, and the grid, all as Inductor's expressions."""

    role: Role
    source: KernelSource
    integers: tuple[sympy.Expr, ...]
    threads: tuple[sympy.Expr, ...]
    group_size: tuple[int, ...]


class KernelCall(ir.ExternKernel):
    """Mutates its written buffers; Inductor orders it after their allocation and before their readers."""

    def __init__(self, launch: Launch, read: Sequence[Any], written: Sequence[Any], device: torch.device):
        super().__init__(None, ir.NoneLayout(device=device), self.unwrap_storage([*read, *written]))
        self.launch = launch
        self.buffers: list[Any] = list(self.inputs)
        self.mutation_outputs = [
            ir.MutationOutput(ir.NoneLayout(device=device), buffer, self) for buffer in self.buffers[len(read) :]
        ]
        self.name = V.graph.register_buffer(self)
        V.graph.register_operation(self)

    def get_outputs(self) -> list[Any]:
        return list(self.mutation_outputs)

    def should_allocate(self) -> bool:
        return False

    def has_side_effects(self) -> bool:
        """A launch whose results nobody reads may go."""
        return False

    def get_unbacked_symbol_defs(self) -> OrderedSet[sympy.Symbol]:
        return OrderedSet()

    def get_free_symbol_uses(self, unbacked_only: bool = False) -> OrderedSet[sympy.Symbol]:
        symbols = super().get_free_symbol_uses(unbacked_only)
        own = (*self.launch.integers, *self.launch.threads)
        return symbols | get_free_symbols(own, unbacked_only)

    def codegen(self, wrapper: Any) -> None:
        """Writes the kernel's definition, once a text, and this call of it."""
        launch = self.launch
        for symbol in sorted(self.get_free_symbol_uses(), key=str):
            wrapper.ensure_size_computed(symbol)
        name = _define_in_cpp(wrapper, launch) if V.graph.cpp_wrapper else _define_in_python(wrapper, launch)
        size = _cpp_size if V.graph.cpp_wrapper else _python_size
        arguments = [buffer.codegen_reference() for buffer in self.buffers]
        arguments += [wrapper.codegen_sizevar(integer) for integer in launch.integers]
        types = [buffer.get_dtype() for buffer in self.buffers] + [int] * len(launch.integers)
        grid = [size(wrapper, "threads", launch.threads), size(wrapper, "group_size", launch.group_size)]
        wrapper.generate_kernel_call(
            name, [*arguments, *grid], device=self.get_device(), triton=False, arg_types=(*types, list, list)
        )


def _define_in_python(wrapper: Any, launch: Launch) -> str:
    """The names differ by text, so profiles and reports tell kernels apart, also those of several subgraphs."""
    source = launch.source
    name = f"{source.entry}_{source.digest[:8]}"
    if wrapper.src_to_kernel.setdefault(source.text, name) is name:
        wrapper.add_import_once("from inductor_mps_attention.runtime import load_kernel")
        wrapper.header.splice(f"{name} = load_kernel({launch.role.value!r}, {source.entry!r}, '''{source.text}''')")
    return name


def _define_in_cpp(wrapper: Any, launch: Launch) -> str:
    name = wrapper.src_to_kernel.get(launch.source.text)
    if name is None:
        name = wrapper.src_to_kernel[launch.source.text] = f"mps_attention_{wrapper.next_kernel_suffix()}"
        text = f'const char* {name}_source = R"MTL({launch.source.text})MTL";'
        wrapper.define_kernel(name, text, None, gpu=False)
    return str(name)


def _python_size(wrapper: Any, keyword: str, sizes: Sequence[Any]) -> str:
    return f"{keyword}=[" + ", ".join(wrapper.codegen_sizevar(size) for size in sizes) + "]"


def _cpp_size(wrapper: Any, keyword: str, sizes: Sequence[Any]) -> str:
    return "{" + ", ".join(f"static_cast<uint64_t>({wrapper.codegen_sizevar(size)})" for size in sizes) + "}"

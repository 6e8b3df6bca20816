"""The private API of Inductor that the lowerings need, in one place and behind one check.

Where a name is missing, or has another shape, nothing is lowered: the operators stay opaque calls, which are right
and a little slower.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any


@functools.cache
def missing() -> str | None:
    """The first thing that this torch lacks, as a phrase, or None where the lowerings can be used."""
    try:
        from torch._inductor import ir
        from torch._inductor.codegen.wrapper import PythonWrapperCodegen
        from torch._inductor.lowering import empty_strided, fallback_handler, register_lowering
        from torch._inductor.sizevars import SizeVarAllocator
        from torch._inductor.virtualized import V
    except ImportError as error:
        return str(error)
    needed: dict[Any, tuple[str, ...]] = {
        ir: ("ExternKernel", "MutationOutput", "NoneLayout", "ReinterpretView", "StorageBox", "TensorBox"),
        ir.ExternKernel: ("realize_input", "require_contiguous", "unwrap_storage"),
        PythonWrapperCodegen: ("generate_kernel_call", "define_kernel", "codegen_sizevar", "ensure_size_computed"),
        SizeVarAllocator: ("simplify", "statically_known_multiple_of", "statically_known_true", "to_symint_or_int"),
    }
    for owner, names in needed.items():
        for name in names:
            if not hasattr(owner, name):
                return f"{owner.__name__} has no {name}"
    for function in (empty_strided, fallback_handler, register_lowering):
        if not callable(function):
            return f"{function!r} is no function"
    if "arg_types" not in inspect.signature(PythonWrapperCodegen.generate_kernel_call).parameters:
        return "generate_kernel_call takes no arg_types"
    return None if hasattr(V, "graph") else "V has no graph"

"""What the default inductor has compiled in this process: functions that a later `register` does not reach."""

from __future__ import annotations

import types
from collections.abc import Iterator


def compiled_by_inductor() -> dict[types.CodeType, str]:
    """What runs instead of the users' functions, one code object a compilation, and how a reader knows the function.

    A module that was compiled as a whole runs through one frame of torch's own, so it has no name here.
    """
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    found = {}
    for code in _seen():
        for entry in _debug_get_cache_entry_list(code):
            if getattr(getattr(entry, "backend", None), "compiler_name", None) == "inductor":
                found[entry.code] = _name(code)
    return found


def _seen() -> Iterator[types.CodeType]:
    from torch._dynamo.convert_frame import input_codes

    for reference in input_codes.seen:
        code = reference()
        if code is not None:
            yield code


def _name(code: types.CodeType) -> str:
    if "torch/_dynamo/" in code.co_filename.replace("\\", "/"):
        return "a compiled module"
    return f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"

"""Functions that a text declares as intrinsics of Apple's compiler, `T f(...) __asm("air.NAME...");` -> calls of what
the shim has for them. Texts that copy by simdgroup events do so, as no header of Metal declares these.
"""

from __future__ import annotations

import re

from .errors import ShaderCompileError
from .source import Source
from .translate_declarations import Declaration, walk

# What the shim has, in namespace msl_, under these names.
_MODELLED = {"simdgroup_async_copy_1d", "simdgroup_async_copy_2d", "wait_simdgroup_events"}
_LABEL = re.compile(r'"air\.(\w+)(?:\.\w+)*"')


def translate_intrinsics(source: Source, declarations: list[Declaration]) -> None:
    """The declarations vanish, and calls go to the shim. Other labels stay, and are refused as assembly."""
    modelled: dict[str, str] = {}
    for declaration in walk(declarations):
        label_at = _label_of(source, declaration)
        matched = _LABEL.fullmatch(source.text(label_at)) if label_at else None
        if label_at is None or matched is None:
            continue
        if matched[1] not in _MODELLED:
            message = f"{source.text(label_at)}: this intrinsic of Apple's compiler cannot be simulated"
            raise ShaderCompileError(message, source.line(label_at))
        modelled[_name_of(source, declaration)] = f"::msl_::{matched[1]}"
        source.remove(declaration.start, declaration.stop)
    for index, token in enumerate(source.tokens if modelled else ()):
        if token.text in modelled and index not in source.edits and source.text(index - 1) not in (".", "->"):
            source.edits[index] = modelled[token.text]


def _label_of(source: Source, declaration: Declaration) -> int | None:
    """The string in `__asm("...")` behind the parameters of a function that has no body."""
    if declaration.kind not in ("function", "other") or declaration.body is not None:
        return None
    for index in range(declaration.start, declaration.stop - 2):
        if source.text(index) in ("asm", "__asm", "__asm__") and source.text(index - 1) == ")":
            return index + 2
    return None


def _name_of(source: Source, declaration: Declaration) -> str:
    return next(
        source.text(index - 1)
        for index in range(declaration.start, declaration.stop)
        if source.text(index) == "(" and source.is_word(index - 1)
    )

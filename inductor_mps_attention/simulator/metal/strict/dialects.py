"""A Metal text in two dialects that clang parses with real address spaces, and what clang says of conversions.

As plain C++, `thread` is the space without a name, as in Metal 3.1; as C++ for OpenCL, references without one and
`this` are generic, as in Metal 4.1. Only errors about address spaces and array lengths are read: what else clang says
of these texts is about our declarations of the library, and the engine's own compilation has the last word there.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..source import Source
from ..toolchain import NATIVE
from ..translate_declarations import ADDRESS_SPACES
from ..translate_expressions import translate_literals
from .findings import Finding, MetalText, is_threadgroup_variable

_FILE = "strict.cpp"
_COMMON = ["-fsyntax-only", "-w", "-ferror-limit=0", "-ftemplate-backtrace-limit=0", f"-I{NATIVE / 'strict'}"]
_ARGUMENTS = {
    "3.1": ["-x", "c++", "-std=c++17", "-Wno-c++11-narrowing", *_COMMON],
    "4.1": ["-x", "clcpp", "-cl-std=clc++2021", "-cl-single-precision-constant", "-cl-no-stdinc",
            "-Xclang", "-cl-ext=+cl_khr_fp16", "-target", "x86_64-linux-gnu", *_COMMON],
}  # fmt: skip
_VECTOR = re.compile(r"(?:packed_)?(?:float|half|bfloat|u?int|u?short|u?char|u?long|bool)[234]")
_ABOUT_SPACES = re.compile(r"address space|__global|__local|__constant|__generic|\b(device|threadgroup|constant) ")
_CONVERSION = re.compile(
    r"cannot initialize|assigning to|cast from|could not bind|changes address space|mismatching address space"
    r"|binding (value|reference)|drops .*qualifier|conflicting|incompatible|cannot bind"
)
_ARRAY_LENGTH = re.compile(r"variable length array|array size is not a constant|variable-sized object")
_OPENCL_NAMES = {"__global": "device", "__local": "threadgroup", "__constant": "constant", "__private": "thread"}


@functools.cache
def is_available() -> bool:
    """Whether the libclang package is installed."""
    return importlib.util.find_spec("clang") is not None and importlib.util.find_spec("clang.cindex") is not None


@functools.cache
def binding() -> Any:
    """clang.cindex. By name, as the package is optional and has no types."""
    return importlib.import_module("clang.cindex")


@dataclass(frozen=True)
class Parsed:
    """A parsed dialect. `places` gives file and line of the Metal text for each line, from 1, of what clang read."""

    version: str
    unit: Any
    places: list[tuple[str, int]]

    def place(self, location: Any) -> tuple[str, int] | None:
        """Where a location of clang's is in the Metal text; None inside our declarations."""
        if location.file is None or location.file.name != _FILE:
            return None
        line = location.line - 2  # behind the line that includes the declarations
        return self.places[line] if 0 <= line < len(self.places) else None


def parse(text: MetalText, version: str) -> Parsed:
    """Parses the text as Metal of that version, "3.1" or "4.1"."""
    code, places = _render(text.source, _edits(text, version))
    content = f'#include "declarations.h"\n{code}\n'
    index = binding().Index.create()
    unit = index.parse(_FILE, args=_ARGUMENTS[version], unsaved_files=[(_FILE, content)])
    return Parsed(version, unit, places)


def conversion_rules(dialects: tuple[Parsed, ...]) -> Iterator[Finding]:
    """A2, A3, A5 and L5, each once a line."""
    seen: set[tuple[str, int, str]] = set()
    for parsed in dialects:
        for diagnostic in parsed.unit.diagnostics:
            place = parsed.place(diagnostic.location)
            rule = _rule(diagnostic, parsed.version)
            if place is None or rule is None or (*place, rule) in seen:
                continue
            seen.add((*place, rule))
            yield Finding(place[1], rule, _readable(diagnostic, parsed.version), place[0])


def _rule(diagnostic: Any, version: str) -> str | None:
    if diagnostic.severity < 3:
        return None
    message = diagnostic.spelling
    if _ARRAY_LENGTH.search(message):
        return "L5"
    if message.startswith("no matching") and "constructor" not in message:
        notes = [note.spelling for note in diagnostic.children if note.spelling.startswith("candidate")]
        # A candidate that fails for another reason says nothing of spaces: the library is declared loosely.
        if not notes or not all("address space" in note and "'this'" not in note for note in notes):
            return None
        message = " ".join(notes)
    elif not _CONVERSION.search(message) or not _ABOUT_SPACES.search(message):
        return None
    if "generic" in message:
        return "A3" if version == "4.1" else None
    return "A5" if "constant" in message else "A2"


def _readable(diagnostic: Any, version: str) -> str:
    message = diagnostic.spelling
    for note in diagnostic.children:
        if "address space" in note.spelling and message.startswith("no matching"):
            message += f": {note.spelling}"
            break
    for theirs, name in _OPENCL_NAMES.items():
        message = message.replace(theirs, name)
    return f"{message} (Metal {version})"


def _edits(text: MetalText, version: str) -> dict[int, str]:
    """What becomes of which token: attributes go, literals get types, vectors are made by a function."""
    source = text.source
    translate_literals(source)
    edits = dict(source.edits)
    for index, token in enumerate(source.tokens):
        if token.text == "[" and source.is_attribute(index):
            edits |= dict.fromkeys(range(index, source.after_attribute(index)), "")
        elif _VECTOR.fullmatch(token.text) and _is_construction(source, index, index + 1):
            edits[index] = f"msl_make<{token.text}>"
        elif token.text == "vec" and source.text(index + 1) == "<":
            closing = source.closing_angle(index + 1)
            if closing is not None and _is_construction(source, index, closing + 1):
                edits[index], edits[closing] = "msl_make<vec", ">>"
        elif token.text in ADDRESS_SPACES and _is_trailing(source, index):
            edits[index] = "" if version == "3.1" else {"constant": "__constant"}.get(token.text, token.text)
        elif token.text == "threadgroup" and version == "3.1" and is_threadgroup_variable(source, index):
            edits[index] = "extern threadgroup"  # which C++ allows in a function
    return edits


def _is_construction(source: Source, start: int, opening: int) -> bool:
    """Whether a type and the bracket behind it make a value, rather than declare something."""
    declares = source.text(start - 1) == "operator" or source.text(opening + 1) in ("*", "&", "thread")
    return source.text(opening) == "(" and not declares


def _is_trailing(source: Source, index: int) -> bool:
    """Whether an address space is that of a member function."""
    at = index - 1
    while source.text(at) in ADDRESS_SPACES | {"const", "volatile"}:
        at -= 1
    after = index + 1
    while source.text(after) in ADDRESS_SPACES | {"const", "volatile"}:
        after += 1
    return source.text(at) == ")" and source.text(after) in ("{", ";", ":", "=", "->", "noexcept")


def _render(source: Source, edits: dict[int, str]) -> tuple[str, list[tuple[str, int]]]:
    """The edited text, a line for each line of Metal that has tokens, and where those lines come from."""
    lines: list[list[str]] = []
    places: list[tuple[str, int]] = []
    for index, token in enumerate(source.tokens):
        place = (token.file, token.line)
        if not places or places[-1] != place:
            places.append(place)
            lines.append([])
        elif token.space:
            lines[-1].append(" ")
        lines[-1].append(edits.get(index, token.text))
    return "\n".join("".join(line) for line in lines), places

"""`threadgroup T x[N];` in a kernel body -> the target's threadgroup memory. Anywhere else such a variable is
an error.
"""

from __future__ import annotations

import bisect

from .errors import ShaderCompileError
from .source import Source
from .target import Target, ThreadgroupVariable
from .tokens import WORD
from .translate_declarations import Declaration

_STATEMENT_STARTS = {"{", "}", ";", ")", ":"}
# What may follow the qualifiers of a member function, besides `{`, `;`, `:` and `= default`.
_MEMBER_ENDS = {"const", "volatile", "override", "final"}
_LEADING = {"volatile", "static", "const"}


def translate_threadgroup_variables(source: Source, kernels: list[Declaration], target: Target) -> None:
    """Edits every threadgroup variable; gives their number for each kernel that has some, by the kernel's
    name.
    """
    bodies = sorted((k.body, k.stop, _own_name(source, k)) for k in kernels if k.body is not None)
    starts = [body[0] for body in bodies]
    number = 0
    for index, token in enumerate(source.tokens):
        if token.text != "threadgroup" or token.kind != WORD or not _starts_statement(source, index):
            continue
        if _qualifies_member(source, index):
            continue
        end = _end(source, index)
        pieces = source.split_commas(index + 1, end)
        if not pieces or _is_pointer(source, *pieces[0]):
            continue
        at = bisect.bisect(starts, index) - 1
        if at < 0 or index >= bodies[at][1]:
            message = f"threadgroup variable '{source.original(index, end)}' stands outside a kernel's body"
            raise ShaderCompileError(message, token.line)
        number = _translate_one(source, index, end, pieces, number, bodies[at][2], target)


def _own_name(source: Source, kernel: Declaration) -> str:
    """A kernel as its own body may call it, with its template parameters; empty where one of these has no name.
    Qualified, as the library may have a function of that name.
    """
    if source.text(kernel.start) != "template":
        return kernel.scope + kernel.name
    closing = source.template_header_end(kernel.start + 1)
    names = []
    for start, stop in source.split_commas(kernel.start + 2, closing or kernel.start + 2):
        end = next((at for at in source.top_level(start, stop) if source.text(at) == "="), stop)
        if end - start < 2 or not source.is_word(end - 1):
            return ""
        names.append(source.text(end - 1) + ("..." if source.text(end - 2) == "..." else ""))
    return f"{kernel.scope}{kernel.name}<{', '.join(names)}>"


def _starts_statement(source: Source, index: int) -> bool:
    return index > 0 and source.text(_specifiers_start(source, index) - 1) in _STATEMENT_STARTS


def _qualifies_member(source: Source, index: int) -> bool:
    """Whether the word stands behind a parameter list, as in `T() threadgroup = default;`."""
    if source.text(index - 1) not in (")", "const", "volatile"):
        return False
    return not source.is_word(index + 1) or source.text(index + 1) in _MEMBER_ENDS


def _specifiers_start(source: Source, index: int) -> int:
    """The first of the specifiers before `threadgroup`: alignas(16) volatile threadgroup ..."""
    while True:
        before = index - 1
        if source.text(before) in _LEADING:
            index = before
        elif source.text(before) == ")" and source.text(source.partner[before] - 1) == "alignas":
            index = source.partner[before] - 1
        else:
            return index


def _end(source: Source, index: int) -> int:
    """The `;` of the declaration, or the `{` of a function whose result type starts with threadgroup."""
    while source.text(index) != ";":
        if index >= len(source.tokens) - 1:
            raise ShaderCompileError("a threadgroup declaration does not end", source.line(index))
        index = source.skip(index)
    return index


def _is_pointer(source: Source, start: int, stop: int) -> bool:
    """Whether the declarator is a pointer or reference: then the variable itself is the thread's own."""
    for at in source.top_level(start, stop):
        if source.text(at) in ("=", "[", "{"):
            return False
        if source.text(at) in ("*", "&"):
            return True
        if source.text(at) == "(":
            return source.text(at + 1) in ("*", "&")
    return False


def _translate_one(
    source: Source,
    index: int,
    end: int,
    pieces: list[tuple[int, int]],
    number: int,
    kernel: str,
    target: Target,
) -> int:
    name_at = _name(source, *pieces[0])
    base = source.edited(index + 1, name_at)
    if not base or not source.is_word(name_at):
        message = f"threadgroup variable '{source.original(index, end)}' cannot be read"
        raise ShaderCompileError(message, source.line(index))
    code = ""
    for start, stop in [(name_at, pieces[0][1]), *pieces[1:]]:
        number += 1
        code += _declare(source, base, start, stop, number, kernel, target)
    source.replace(_specifiers_start(source, index), end + 1, code.strip())
    return number


def _name(source: Source, start: int, stop: int) -> int:
    """The index of the declared name: the last word before the dimensions or the initialiser."""
    name = start
    for at in source.top_level(start, stop):
        if source.text(at) in ("=", "[", "{"):
            break
        name = at
    return name


def _declare(source: Source, base: str, start: int, stop: int, number: int, kernel: str, target: Target) -> str:
    at = start + 1
    while source.text(at) == "[" and at < stop:
        at = source.partner[at] + 1
    dimensions = source.edited(start + 1, at)
    if source.text(at) == "__attribute__":  # aligned(n), up to the 16 bytes that every variable is aligned to
        at = source.skip(at + 1)
    initialiser = source.edited(at, stop)
    return target.threadgroup_variable(
        ThreadgroupVariable(source.text(start), base, dimensions, initialiser, number, kernel)
    )

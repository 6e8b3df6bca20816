"""Rules of address spaces that tokens show: A1, A3 (member functions), A4, A8, A9, A10, A11."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..translate_declarations import ADDRESS_SPACES, Declaration
from .findings import Finding, MetalText, is_threadgroup_variable

_VECTOR = re.compile(r"(float|half|bfloat|u?int|u?short|u?char|u?long|bool)[234]?(x[234])?")
_OTHER_TYPES = {"void", "size_t", "ptrdiff_t", "unsigned", "signed", "simdgroup_matrix", "vec", "matrix"}
_OTHER_TYPES |= {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_OTHER_TYPES |= {f"simdgroup_{name}8x8" for name in ("float", "half", "bfloat")}
_OTHER_TYPES |= {"atomic", "atomic_int", "atomic_uint", "atomic_float", "atomic_bool", "atomic_ulong"}
_TRAILING = {"thread", "device", "constant", "threadgroup"}


def pointer_rules(text: MetalText) -> Iterator[Finding]:
    yield from _declarators(text)
    yield from _decltypes(text)
    yield from _initialised_variables(text)
    for declaration in text.classes:
        yield from _members(text, declaration)
    for index, name, _ in text.attribute_words():
        if name == "threadgroup":
            yield text.finding("A10", index, "the host must size a [[threadgroup(n)]] argument, and torch cannot")
    yield from _pointers_in_buffers(text)


def _type_names(text: MetalText) -> set[str]:
    """Types that the text declares: classes, aliases, template parameters."""
    source = text.source
    names = {declaration.name for declaration in text.classes}
    for index, token in enumerate(source.tokens):
        parameter = token.text in ("typename", "class") and source.text(index + 2) in (",", ">", "=")
        alias = token.text == "using" and source.text(index + 2) == "="
        if (parameter or alias) and source.is_word(index + 1):
            names.add(source.text(index + 1))
        elif token.text == "typedef":
            end = next(at for at in range(index, len(source.tokens)) if source.text(at) == ";")
            names.add(source.text(end - 1))
    return names - {""}


def _declarators(text: MetalText) -> Iterator[Finding]:
    """A1 for every `T*`, `T&` and `T (&x)[N]`; A9 for threadgroup references; A11 for pointers to pointers."""
    source, known = text.source, _type_names(text) | _OTHER_TYPES
    for index, token in enumerate(source.tokens):
        if token.text not in ("*", "&", "&&"):
            continue
        before = _declarator_start(text, index)
        name = text.type_before(before)
        if source.text(before - 1) == "*" and _is_type(text.type_before(before - 1), known):
            yield text.finding("A11", index, "a pointer to a pointer is not known to compile everywhere")
        if not _is_type(name, known):
            continue
        spaces = text.address_spaces(before)
        what = "pointer" if token.text == "*" else "reference"
        if not spaces:
            yield text.finding("A1", index, f"the {what} to {name} has no address space")
        elif "threadgroup" in spaces and token.text == "&":
            yield text.finding("A9", index, "a threadgroup reference may be miscompiled; a pointer is not")


def _is_type(name: str, known: set[str]) -> bool:
    return name in known or _VECTOR.fullmatch(name) is not None


def _declarator_start(text: MetalText, index: int) -> int:
    """Where the specifiers of the declarator at `index` end: before qualifiers, or before `(` in `T (&x)[N]`."""
    source = text.source
    at = index
    while source.text(at - 1) in ADDRESS_SPACES | {"const", "volatile"} and source.text(at - 2) == "*":
        at -= 1
    opening = index - 1
    if source.text(opening) == "(":
        array = source.text(source.partner[opening] + 1) == "["
        return opening if array and source.partner[opening] - index <= 2 else index
    return at


def _decltypes(text: MetalText) -> Iterator[Finding]:
    source = text.source
    for index, token in enumerate(source.tokens):
        if token.text == "decltype" and source.text(index + 1) == "(":
            end = source.partner[index + 1]
            specialisation = source.is_word(index + 2) and source.text(index + 3) == "<" and source.text(end - 1) == ">"
            if not specialisation:
                yield text.finding("A4", index, "decltype of an lvalue carries its address space from Metal 4.1 on")


def _initialised_variables(text: MetalText) -> Iterator[Finding]:
    source = text.source
    for index, token in enumerate(source.tokens):
        if token.text != "threadgroup" or not is_threadgroup_variable(source, index):
            continue
        end = next(at for at in range(index, len(source.tokens)) if source.text(at) == ";")
        if any(source.text(at) in ("=", "{") for at in source.top_level(index, end)):
            yield text.finding("A8", index, "threadgroup variables are not known to take initialisers everywhere")


def _members(text: MetalText, declaration: Declaration) -> Iterator[Finding]:
    """A3: member functions end in an address space; A11: no member is a reference."""
    source = text.source
    for member in declaration.members:
        words = source.words(member.start, member.parameters or member.stop)
        if member.kind == "function" and not words & {"static", "friend"}:
            assert member.parameters is not None
            assert member.body is not None
            trailing = source.words(source.partner[member.parameters], _initialisers(text, member))
            if not trailing & _TRAILING:
                message = (
                    f"`this` of {declaration.name}::{member.name} is generic from Metal 4.1 on: add a trailing thread"
                )
                yield text.finding("A3", member.start, message)
        elif member.kind == "other" and not words & {"using", "typedef", "friend"}:
            top = list(source.top_level(member.start, member.stop))
            plain = not any(source.text(at) in ("(", "=", "operator") for at in top)
            for at in top:
                if plain and source.text(at) == "&":
                    yield text.finding("A11", at, f"a member of {declaration.name} is a reference")


def _initialisers(text: MetalText, member: Declaration) -> int:
    """Where a member function's initialisers or body start."""
    assert member.parameters is not None
    assert member.body is not None
    start = text.source.partner[member.parameters] + 1
    return next((at for at in range(start, member.body) if text.source.text(at) == ":"), member.body)


def _pointers_in_buffers(text: MetalText) -> Iterator[Finding]:
    """A11: a struct that holds pointers is no kernel argument."""
    source = text.source
    holders = {
        declaration.name
        for declaration in text.classes
        for member in declaration.members
        if member.kind == "other" and any(source.text(at) == "*" for at in source.top_level(member.start, member.stop))
    }
    for kernel in text.kernels:
        for parameter in kernel.parameters:
            found = source.words(parameter.start, parameter.stop) & holders
            if found:
                message = f"the buffer of {found.pop()} holds pointers, which needs argument buffers"
                yield text.finding("A11", parameter.start, message)

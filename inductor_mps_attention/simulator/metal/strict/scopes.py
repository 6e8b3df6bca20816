"""Rules of clang's syntax tree: where things are declared, what threadgroup memory holds, who calls whom.

A6, A7, L1, L3 (recursion), L6, M1. The tree is that of the 3.1 dialect; templates are looked at as written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .dialects import Parsed, binding
from .findings import Finding, MetalText

THREADGROUP_BYTES = 32768
_CONSTANT, _THREADGROUP = 2, 3
_FUNCTIONS = {"FUNCTION_DECL", "FUNCTION_TEMPLATE", "CXX_METHOD", "CONSTRUCTOR", "CONVERSION_FUNCTION"}
_SCOPES = {"NAMESPACE", "STRUCT_DECL", "CLASS_DECL", "UNION_DECL", "CLASS_TEMPLATE", "LINKAGE_SPEC"}


def scope_rules(text: MetalText, parsed: Parsed) -> Iterator[Finding]:
    kernels = {kernel.name for kernel in text.kernels}
    # Every step through the tree is a call into libclang: each function is walked once.
    bodies = [(function, list(function.walk_preorder())) for function in _functions(parsed.unit.cursor, parsed)]
    yield from _file_variables(parsed.unit.cursor, parsed)
    for function, cursors in bodies:
        yield from _threadgroup_variables(function, cursors, parsed, function.spelling in kernels)
        for cursor in cursors:
            if cursor.kind.name == "LAMBDA_EXPR":
                yield from _at(parsed, cursor, "L1", "lambdas do not exist before Metal 3.2")
    yield from _recursion(bodies, parsed)


def _at(parsed: Parsed, cursor: Any, rule: str, message: str) -> Iterator[Finding]:
    place = parsed.place(cursor.location)
    if place is not None:
        yield Finding(place[1], rule, message, place[0])


def _functions(cursor: Any, parsed: Parsed) -> Iterator[Any]:
    for child in cursor.get_children():
        if parsed.place(child.location) is None:
            continue
        if child.kind.name in _FUNCTIONS:
            yield child
        elif child.kind.name in _SCOPES:
            yield from _functions(child, parsed)


def _file_variables(cursor: Any, parsed: Parsed) -> Iterator[Finding]:
    """L6: variables of files, namespaces and classes are constant."""
    for child in cursor.get_children():
        if parsed.place(child.location) is None:
            continue
        if child.kind.name in _SCOPES:
            yield from _file_variables(child, parsed)
        elif child.kind.name == "VAR_DECL" and _space(child.type) != _CONSTANT:
            yield from _at(parsed, child, "L6", f"'{child.spelling}' has program scope and is not in constant memory")


def _space(kind: Any) -> int:
    """The number of the address space of a type. That of an array stands at the array as it was written."""
    return int(kind.get_address_space()) or int(_innermost(kind).get_address_space())


def _innermost(kind: Any) -> Any:
    """A type without its array dimensions."""
    kind = kind.get_canonical()
    while _kind_name(kind).endswith("ARRAY"):
        kind = kind.get_array_element_type().get_canonical()
    return kind


def _kind_name(kind: Any) -> str:
    """The name of a type's kind; "" for half, which the Python binding has no name for."""
    try:
        return str(kind.kind.name)
    except ValueError:
        return ""


def _threadgroup_variables(function: Any, cursors: list[Any], parsed: Parsed, is_kernel: bool) -> Iterator[Finding]:
    total = 0
    for cursor in cursors:
        if cursor.kind.name != "VAR_DECL" or _space(cursor.type) != _THREADGROUP:
            continue
        name = cursor.spelling
        if not is_kernel:
            yield from _at(parsed, cursor, "A6", f"threadgroup variable '{name}' stands outside a kernel's body")
        yield from _element(parsed, cursor)
        total += (max(cursor.type.get_size(), 0) + 15) // 16 * 16
    if total > THREADGROUP_BYTES:
        message = f"{total} bytes of threadgroup memory; there are {THREADGROUP_BYTES}"
        yield from _at(parsed, function, "M1", message)


def _element(parsed: Parsed, variable: Any) -> Iterator[Finding]:
    declaration = _innermost(variable.type).get_declaration()
    if _has_constructor(declaration):
        message = f"threadgroup memory of {declaration.spelling}, whose constructor cannot run there"
        yield from _at(parsed, variable, "A7", message)


def _has_constructor(declaration: Any) -> bool:
    """Whether a class, or the template that it comes from, or a member of it, has a constructor."""
    template = binding().conf.lib.clang_getSpecializedCursorTemplate(declaration)
    for cursor in (declaration, template):
        for child in cursor.get_children() if cursor is not None else ():
            if child.kind.name == "CONSTRUCTOR" and not child.is_default_method():
                return True
            if child.kind.name == "FIELD_DECL":
                kind = _innermost(child.type)
                if _kind_name(kind) == "RECORD" and _has_constructor(kind.get_declaration()):
                    return True
    return False


def _recursion(bodies: list[tuple[Any, list[Any]]], parsed: Parsed) -> Iterator[Finding]:
    """L3: a function that reaches itself."""
    calls: dict[str, set[str]] = {}
    cursors: dict[str, Any] = {}
    for function, inside in bodies:
        own = function.get_usr()
        cursors[own] = function
        reached = calls.setdefault(own, set())
        for cursor in inside:
            if cursor.kind.name == "CALL_EXPR" and cursor.referenced is not None:
                reached.add(cursor.referenced.get_usr())
    for own, cursor in cursors.items():
        if _reaches(calls, own):
            yield from _at(parsed, cursor, "L3", f"{cursor.spelling} calls itself, which Metal does not allow")


def _reaches(calls: dict[str, set[str]], start: str) -> bool:
    seen: set[str] = set()
    waiting = list(calls[start])
    while waiting:
        name = waiting.pop()
        if name == start:
            return True
        if name not in seen:
            seen.add(name)
            waiting += calls.get(name, ())
    return False

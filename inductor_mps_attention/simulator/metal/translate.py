"""Preprocessed Metal text -> C++17 text for a target and what is known of its kernels. Knows no compiler, no
files and no tensors.

The C++ text needs the target's shim header, which gives the names of <metal_stdlib> a meaning there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .entries import Entry
from .errors import ShaderCompileError
from .source import Source
from .strict import refuse_violations
from .target import CPU, Target
from .translate_attributes import (
    Attribute,
    attributes_between,
    find_attribute,
    integer_argument,
    read_attributes,
)
from .translate_conditionals import translate_conditionals
from .translate_declarations import ADDRESS_SPACES, Declaration, read_declarations, walk
from .translate_expressions import (
    erase_address_spaces,
    refuse_resources,
    refuse_words,
    translate_literals,
    translate_swizzles,
)
from .translate_initialisers import translate_designated_elements
from .translate_intrinsics import translate_intrinsics
from .translate_kernels import translate_kernels
from .translate_overloads import drop_duplicates, order_overloads
from .translate_reachability import CallGraph
from .translate_threadgroup import translate_threadgroup_variables

ConstantValue = bool | int | float
_CONSTANT_SPECIFIERS = ADDRESS_SPACES | {"const", "constexpr", "static", "inline"}


@dataclass(frozen=True)
class Translation:
    """The C++ text, the kernels that can be launched, and the names of those that need no fibers."""

    code: str
    entries: tuple[Entry, ...]
    independent: frozenset[str]


def translate(
    text: str,
    function_constants: Mapping[int | str, ConstantValue] | None = None,
    *,
    strict: bool = False,
    target: Target = CPU,
) -> Translation:
    """Translates a preprocessed Metal text. `function_constants` gives values by index or by name; others are
    undefined.

    Raises ShaderCompileError, with the line, for anything that is not understood.
    """
    source = Source(text, keeps_pragmas=target.keeps_pragmas)
    attributes = read_attributes(source)
    declarations = read_declarations(source, target.scope)
    if strict:
        refuse_violations(source)
    translate_intrinsics(source, declarations)
    refuse_words(source)
    refuse_resources(source, declarations)
    translate_literals(source)
    translate_swizzles(source, declarations)
    names = _translate_function_constants(source, declarations, attributes, function_constants or {})
    _translate_constant_queries(source, names)
    erase_address_spaces(source)
    translate_designated_elements(source)
    translate_conditionals(source)
    kernels = translate_kernels(source, declarations, attributes, target)
    translate_threadgroup_variables(source, kernels.declarations, target)
    drop_duplicates(source, declarations)
    order_overloads(source, declarations)
    _translate_member_specialisations(source, declarations)
    if not kernels.entries:
        raise ShaderCompileError("the text has no kernel")
    graph = CallGraph(source, declarations)
    independent = frozenset(entry.name for entry in kernels.entries if graph.is_independent(entry))
    return Translation(source.render() + "\n", tuple(kernels.entries), independent)


def _translate_function_constants(
    source: Source,
    declarations: list[Declaration],
    attributes: dict[int, list[Attribute]],
    values: Mapping[int | str, ConstantValue],
) -> set[str]:
    """constant T name [[function_constant(n)]]; -> a constexpr of the value, and whether it was given."""
    names: set[str] = set()
    for declaration in walk(declarations):
        start, stop = declaration.start, declaration.stop
        if declaration.kind != "other" or not declaration.name:
            continue
        constant = find_attribute(attributes_between(attributes, source, start, stop), "function_constant")
        if constant is None:
            continue
        name, index = declaration.name, integer_argument(constant)
        names_at = next(at for at in range(start, stop) if source.text(at) == name)
        kind = " ".join(source.text(at) for at in range(start, names_at) if source.text(at) not in _CONSTANT_SPECIFIERS)
        value = values.get(index, values.get(name))
        given = "false" if value is None else "true"
        code = f"static constexpr {kind} {name} = ({kind})({_constant_text(value)}); "
        code += f"static constexpr bool msl_constant_given_{name} = {given};"
        source.replace(start, stop, code)
        names.add(name)
    return names


def _constant_text(value: ConstantValue | None) -> str:
    if value is None:
        return "0"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int) else f"{value!r}f"


def _translate_constant_queries(source: Source, names: set[str]) -> None:
    for index, token in enumerate(source.tokens):
        if token.text != "is_function_constant_defined":
            continue
        name = source.text(index + 2)
        if source.text(index + 1) != "(" or name not in names:
            raise ShaderCompileError(f"{token.text}({name}): no such function constant", token.line)
        source.edits[index] = ""
        source.edits[index + 2] = f"msl_constant_given_{name}"


def _translate_member_specialisations(source: Source, declarations: list[Declaration]) -> None:
    """`template <>` of a member function inside its class, which g++ does not have, becomes an overload.

    Calls with these very types choose it all the same.
    """
    for declaration in walk(declarations):
        if declaration.kind != "class":
            continue
        for member in declaration.members:
            explicit = [source.text(at) for at in range(member.start, member.start + 3)] == ["template", "<", ">"]
            if explicit and member.kind == "function" and source.text((member.parameters or 0) - 1) != ">":
                source.remove(member.start, member.start + 3)

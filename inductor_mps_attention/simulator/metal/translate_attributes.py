"""`[[...]]` of a Metal text: reads them, refuses every one that the engine does not know, removes them from
the C++ text.
"""

from __future__ import annotations

import ast
import operator
import re
from dataclasses import dataclass

from .errors import ShaderCompileError
from .source import Source

# What a kernel parameter may be given by the hardware, and the launcher's name of it.
POSITIONS = {
    "thread_position_in_grid": "A_TPIG",
    "thread_position_in_threadgroup": "A_TPITG",
    "threadgroup_position_in_grid": "A_TGPIG",
    "threadgroups_per_grid": "A_TGPG",
    "threads_per_threadgroup": "A_TPTG",
    "dispatch_threads_per_threadgroup": "A_DTPTG",
    "threads_per_grid": "A_TPG",
    "thread_index_in_threadgroup": "A_TIITG",
    "thread_index_in_simdgroup": "A_LANE",
    "simdgroup_index_in_threadgroup": "A_SG",
    "simdgroups_per_threadgroup": "A_NSG",
    "dispatch_simdgroups_per_threadgroup": "A_NSG",
    "threads_per_simdgroup": "A_SIMDSZ",
    "thread_execution_width": "A_SIMDSZ",
    "quadgroup_index_in_threadgroup": "A_QUAD",
    "thread_index_in_quadgroup": "A_QLANE",
    "quadgroups_per_threadgroup": "A_NQUAD",
    "dispatch_quadgroups_per_threadgroup": "A_NQUAD",
    "grid_origin": "A_ORIGIN",
}
_FUNCTION = {"kernel", "host_name", "max_total_threads_per_threadgroup"}
_PARAMETER = {"buffer", "threadgroup", "function_constant"}
# Standard attributes, and hints for an optimiser: they change no result.
_IGNORED = {"maybe_unused", "unused", "nodiscard", "fallthrough", "likely", "unlikely", "deprecated"}
_IGNORED |= {"always_inline", "noinline", "flatten", "unroll", "user_annotation"}
_KNOWN = _FUNCTION | _PARAMETER | _IGNORED | POSITIONS.keys()


@dataclass(frozen=True)
class Attribute:
    """One attribute: its name, the Metal text between its parentheses ("" without), and its line."""

    name: str
    argument: str
    line: int


def read_attributes(source: Source) -> dict[int, list[Attribute]]:
    """Every `[[...]]` by the index of its first token; each is removed. Raises on an attribute that is not
    known.
    """
    found: dict[int, list[Attribute]] = {}
    for index, token in enumerate(source.tokens):
        if token.text != "[" or index in source.edits or not source.is_attribute(index):
            continue
        end = source.after_attribute(index)
        if source.partner[index + 1] != end - 2:
            raise ShaderCompileError("an attribute [[...]] is not closed by ']]'", source.line(index))
        found[index] = [_read_one(source, *piece) for piece in source.split_commas(index + 2, end - 2)]
        source.remove(index, end)
    for index in _behind_parameters(source):
        found[index] = [
            _read_one(source, *piece) for piece in source.split_commas(index + 3, source.partner[index + 2])
        ]
        source.remove(index, source.skip(index + 1))
    return found


def _behind_parameters(source: Source) -> list[int]:
    """`__attribute__((...))` between a function's parameters and its body, where Metal has it and C++ does not."""
    return [
        index
        for index, token in enumerate(source.tokens)
        if token.text == "__attribute__"
        and source.text(index - 1) == ")"
        and source.text(index + 2) == "("
        and source.text(source.skip(index + 1)) == "{"
    ]


def _read_one(source: Source, start: int, stop: int) -> Attribute:
    line = source.line(start)
    name, after = source.text(start), start + 1
    while source.text(after) == "::" and after < stop:  # gnu::always_inline: the vendor does not matter
        name, after = source.text(after + 1), after + 2
    if name not in _KNOWN:
        raise ShaderCompileError(f"attribute [[{source.original(start, stop)}]] is not supported", line)
    argument = ""
    if source.text(after) == "(" and after < stop:
        argument = source.original(after + 1, source.partner[after])
        after = source.partner[after] + 1
    if after != stop:
        raise ShaderCompileError(f"attribute [[{source.original(start, stop)}]] is malformed", line)
    return Attribute(name, argument, line)


def attributes_between(
    attributes: dict[int, list[Attribute]], source: Source, start: int, stop: int
) -> list[Attribute]:
    """The attributes of a declaration or parameter; those inside its parentheses are its parameters'."""
    result: list[Attribute] = []
    index = start
    while index < stop:
        if index in attributes:
            result += attributes[index]
            index = source.after_attribute(index) if source.is_attribute(index) else source.skip(index + 1)
        else:
            index = source.skip(index)
    return result


def find_attribute(attributes: list[Attribute], name: str) -> Attribute | None:
    return next((attribute for attribute in attributes if attribute.name == name), None)


def text_argument(attribute: Attribute) -> str:
    """The string of [[host_name("...")]]; adjacent literals are joined, as preprocessor macros write them."""
    try:
        value = ast.literal_eval(f"({attribute.argument})")
    except (SyntaxError, ValueError):
        value = None
    if not isinstance(value, str):
        raise ShaderCompileError(f"[[{attribute.name}({attribute.argument})]] needs a string", attribute.line)
    return value


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
}


def integer_argument(attribute: Attribute) -> int:
    """The value of [[buffer(2 + 1)]]: sums and products of integer literals, as preprocessor macros leave
    them.
    """
    expression = attribute.argument.replace("/", "//").replace("< <", "<<").replace("> >", ">>")
    expression = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", expression)
    expression = re.sub(r"\b0(?=[0-7]+\b)", "0o", expression)
    try:
        return _integer(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError) as error:
        message = f"[[{attribute.name}({attribute.argument})]] needs an integer constant"
        raise ShaderCompileError(message, attribute.line) from error


def _integer(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return int(_OPERATORS[type(node.op)](_integer(node.left), _integer(node.right)))
    raise ValueError(f"not an integer constant: {ast.dump(node)}")

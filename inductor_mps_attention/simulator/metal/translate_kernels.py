"""Kernels of a Metal text: their parameters, template instantiations and host names -> an entry for each, in
the words of the target.

An entry stands right behind its kernel, on the same line and in the same namespace, so names mean what they
mean there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .entries import Entry, Parameter
from .errors import ShaderCompileError
from .source import Source
from .target import Target
from .translate_attributes import (
    POSITIONS,
    Attribute,
    attributes_between,
    find_attribute,
    integer_argument,
    text_argument,
)
from .translate_declarations import Declaration, after_template_header, walk

MAX_BUFFERS = 31
MAX_DYNAMIC_ARRAYS = 8
_TYPE_NAMES = {"float", "half", "bfloat", "bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong"}
_NOT_A_POSITION_TYPE = {
    "int",
    "short",
    "char",
    "long",
    "ulong",
    "float",
    "half",
    "bool",
    "size_t",
    "int2",
    "int3",
}


@dataclass
class KernelFunction:
    """A function declared `kernel`, a template or not."""

    declaration: Declaration
    parameters: tuple[Parameter, ...]
    max_threads: int


@dataclass
class Kernels:
    """All kernel functions by name, which templates may share, and all entries in the order of the text."""

    target: Target
    functions: dict[str, list[KernelFunction]] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)

    @property
    def declarations(self) -> list[Declaration]:
        return [function.declaration for overloads in self.functions.values() for function in overloads]


def translate_kernels(
    source: Source, declarations: list[Declaration], attributes: dict[int, list[Attribute]], target: Target
) -> Kernels:
    """Finds the kernels, reads their parameters, and adds the entries to the text."""
    kernels = Kernels(target)
    for declaration in walk(declarations):
        if declaration.kind == "function":
            _read_kernel(source, declaration, attributes, kernels)
        elif declaration.kind == "other" and declaration.name:
            _replace_keyword(source, declaration.start, declaration.stop, target)  # a prototype
        elif declaration.kind == "instantiation":
            _read_instantiation(source, declaration, attributes, kernels)
    return kernels


def _is_kernel(source: Source, start: int, stop: int, attributes: list[Attribute]) -> bool:
    keyword = any(source.text(at) == "kernel" for at in source.top_level(start, stop))
    return keyword or find_attribute(attributes, "kernel") is not None


def _replace_keyword(source: Source, start: int, stop: int, target: Target) -> None:
    for at in source.top_level(start, stop):
        if source.text(at) == "kernel":
            source.replace(at, at + 1, target.kernel_specifier)


def _read_kernel(
    source: Source, declaration: Declaration, attributes: dict[int, list[Attribute]], kernels: Kernels
) -> None:
    opening, start = declaration.parameters, declaration.start
    assert opening is not None
    own = attributes_between(attributes, source, start, opening)
    own += attributes_between(attributes, source, source.skip(opening), declaration.body or declaration.stop)
    head = after_template_header(source, start)
    if not _is_kernel(source, head, opening, own):
        return
    _replace_keyword(source, head, opening, kernels.target)
    name, line = declaration.name, source.line(opening)
    if not any(source.text(at) == "void" for at in source.top_level(head, opening)):
        raise ShaderCompileError(f"kernel '{name}' must return void", line)
    if name in kernels.functions and head == start:
        raise ShaderCompileError(
            f"kernel '{name}' is declared twice: only templates of kernels can be overloaded", line
        )
    parameters = _read_parameters(source, opening, attributes)
    limit = find_attribute(own, "max_total_threads_per_threadgroup")
    function = KernelFunction(declaration, parameters, _thread_limit(limit))
    kernels.functions.setdefault(name, []).append(function)
    if head == start:  # not a template
        host_name = find_attribute(own, "host_name")
        public = text_argument(host_name) if host_name else name
        code = _add_entry(kernels, public, function, f"&{declaration.scope}{name}", frozenset(), line)
        source.append(declaration.stop - 1, code)


def _thread_limit(attribute: Attribute | None) -> int:
    if attribute is None or re.search(r"\b[A-Za-z_]", attribute.argument):
        return 1024  # an expression over template parameters bounds the compiler, not the launch
    limit = integer_argument(attribute)
    if not 1 <= limit <= 1024:
        message = f"[[max_total_threads_per_threadgroup({limit})]]: a threadgroup has 1 to 1024 threads"
        raise ShaderCompileError(message, attribute.line)
    return limit


def _add_entry(
    kernels: Kernels,
    name: str,
    function: KernelFunction,
    reference: str,
    arguments: frozenset[str],
    line: int,
) -> str:
    if any(entry.name == name for entry in kernels.entries):
        raise ShaderCompileError(f"two kernels have the name '{name}'", line)
    symbol = f"msl_entry_{len(kernels.entries)}"
    parameters = function.parameters
    entry = Entry(name, symbol, function.declaration.name, parameters, function.max_threads, arguments)
    kernels.entries.append(entry)
    return kernels.target.entry(entry, reference)


def _read_instantiation(
    source: Source, declaration: Declaration, attributes: dict[int, list[Attribute]], kernels: Kernels
) -> None:
    """template [[host_name("x")]] [[kernel]] decltype(f<A>) f<A>; or kernel void f<A>(types); or kernel type
    f<A>;
    """
    start, stop = declaration.start, declaration.stop
    own = attributes_between(attributes, source, start, stop)
    host_name = find_attribute(own, "host_name")
    if host_name is None and not _is_kernel(source, start + 1, stop, own):
        return
    last, parameters_at = stop - 2, None
    while source.text(last) == "]" and source.is_attribute(source.partner[last]):
        last = source.partner[last] - 1
    if source.text(last) == ")":
        parameters_at = source.partner[last]
        last = parameters_at - 1
    first = _reference_start(source, last)
    name_at = last if source.text(last) != ">" else (source.opening_angle(last) or last) - 1
    function = _overload(source, kernels.functions.get(source.text(name_at), []), name_at + 1, last)
    if function is None:
        message = f"'{source.original(start, stop)}' instantiates no kernel of this text"
        raise ShaderCompileError(message, source.line(start))
    scope = function.declaration.scope if first == name_at else ""
    reference = f"&{scope}{source.edited(first, last + 1)}"
    if name_at == last and parameters_at is not None:  # the arguments of the template follow from the parameters
        types = source.edited(parameters_at, source.partner[parameters_at] + 1)
        reference = f"static_cast<void (*){types}>({reference})"
    public = text_argument(host_name) if host_name else source.original(first, last + 1).replace(" ", "")
    words = frozenset(source.words(name_at + 1, last + 1))
    code = _add_entry(kernels, public, function, reference, words, source.line(start))
    source.replace(start, stop, code.strip())


def _overload(source: Source, overloads: list[KernelFunction], opening: int, closing: int) -> KernelFunction | None:
    """The kernel among templates of one name whose parameters take the arguments <...> between two tokens."""
    if len(overloads) < 2:
        return overloads[0] if overloads else None
    arguments = [source.text(start) for start, _ in source.split_commas(opening + 1, closing)]
    return next((each for each in overloads if _takes(source, each.declaration, arguments)), None)


def _takes(source: Source, kernel: Declaration, arguments: list[str]) -> bool:
    """Whether template arguments, by their first tokens, may be those of a kernel: numbers for values, and enough."""
    if source.text(kernel.start) != "template":
        return False
    end = source.template_header_end(kernel.start + 1) or kernel.start + 2
    parameters = source.split_commas(kernel.start + 2, end)
    if len(arguments) > len(parameters):
        return False
    for number, (start, stop) in enumerate(parameters):
        is_type = source.text(start) in ("typename", "class")
        if number >= len(arguments):
            if not any(source.text(at) == "=" for at in source.top_level(start, stop)):
                return False
        elif arguments[number] in _TYPE_NAMES if not is_type else _is_value(arguments[number]):
            return False
    return True


def _is_value(token: str) -> bool:
    return token[0].isdigit() or token in ("true", "false", "-", "(")


def _reference_start(source: Source, last: int) -> int:
    """The first token of the qualified name `a::b<...>` that ends at `last`."""
    at = last
    while True:
        if source.text(at) == ">":
            at = (source.opening_angle(at) or at) - 1
        if source.text(at - 1) != "::":
            return at
        if (not source.is_word(at - 2) and source.text(at - 2) != ">") or source.text(at - 2) == "void":
            return at - 1
        at -= 2


def _read_parameters(source: Source, opening: int, attributes: dict[int, list[Attribute]]) -> tuple[Parameter, ...]:
    pieces = source.split_commas(opening + 1, source.partner[opening])
    own = [attributes_between(attributes, source, start, stop) for start, stop in pieces]
    free = {kind: _free_indices(own, kind) for kind in ("buffer", "threadgroup")}
    parameters = [
        _read_parameter(source, start, stop, found, free) for (start, stop), found in zip(pieces, own, strict=True)
    ]
    _check_buffers(parameters, source.line(opening))
    return tuple(parameters)


def _free_indices(attributes: list[list[Attribute]], kind: str) -> Iterator[int]:
    """The indices that no parameter asks for, in order: parameters without one take these."""
    taken = {integer_argument(a) for found in attributes for a in found if a.name == kind}
    return (index for index in itertools.count() if index not in taken)


def _read_parameter(
    source: Source, start: int, stop: int, attributes: list[Attribute], free: dict[str, Iterator[int]]
) -> Parameter:
    text, line = _without_attributes(source, start, stop), source.line(start)
    words = [source.text(at) for at in source.top_level(start, stop)]
    optional = find_attribute(attributes, "function_constant") is not None
    position = next((a for a in attributes if a.name in POSITIONS), None)
    if position is not None:
        wrong = _NOT_A_POSITION_TYPE & set(words[:-1])
        if wrong or {"device", "constant", "threadgroup"} & set(words):
            raise ShaderCompileError(f"'{text}': [[{position.name}]] is a uint or ushort, or a vector of them", line)
        return Parameter(POSITIONS[position.name], 0, text, False, False)
    buffer, dynamic = find_attribute(attributes, "buffer"), find_attribute(attributes, "threadgroup")
    indirect = "*" in words or "&" in words or "[" in words
    if dynamic is not None or ("threadgroup" in words and buffer is None):
        index = integer_argument(dynamic) if dynamic else next(free["threadgroup"])
        if not 0 <= index < MAX_DYNAMIC_ARRAYS:
            message = f"'{text}': threadgroup index {index}; this engine has 0 to {MAX_DYNAMIC_ARRAYS - 1}"
            raise ShaderCompileError(message, line)
        return Parameter("A_TG", index, text, True, optional)
    if not {"device", "constant"} & set(words) or not indirect:
        message = f"kernel parameter '{text}' needs an attribute, or a device or constant pointer or reference"
        raise ShaderCompileError(message, line)
    index = integer_argument(buffer) if buffer else next(free["buffer"])
    return Parameter("A_BUF", index, text, _is_writable(words), optional)


def _without_attributes(source: Source, start: int, stop: int) -> str:
    """A parameter as it is shown to people."""
    pieces, at = [], start
    while at < stop:
        if source.is_attribute(at):
            at = source.after_attribute(at)
        else:
            pieces.append(source.text(at))
            at += 1
    return re.sub(r" (?=[*&\[\]<>(),:])|(?<=[\[<(:]) ", "", " ".join(pieces))


def _is_writable(words: list[str]) -> bool:
    """Whether what a pointer or reference leads to may be written: no const before the first * or &."""
    declarator = next((at for at, word in enumerate(words) if word in ("*", "&", "[")), len(words))
    return not {"const", "constant"} & set(words[:declarator])


def _check_buffers(parameters: list[Parameter], line: int) -> None:
    seen: set[int] = set()
    for parameter in parameters:
        if parameter.kind != "A_BUF":
            continue
        if not 0 <= parameter.index < MAX_BUFFERS:
            message = f"buffer index {parameter.index} of '{parameter.text}': Metal has 0 to {MAX_BUFFERS - 1}"
            raise ShaderCompileError(message, line)
        if parameter.index in seen and not parameter.optional:
            raise ShaderCompileError(f"buffer index {parameter.index} is given twice", line)
        seen.add(parameter.index)

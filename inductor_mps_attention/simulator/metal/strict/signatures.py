"""Rules of kernel signatures: K1 to K7, M2."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import ShaderCompileError
from ..translate_attributes import Attribute, integer_argument
from ..translate_declarations import after_template_header, walk
from .findings import Finding, Function, MetalText, Parameter, is_position

MAX_BUFFER_INDEX = 30
MAX_THREADS = 1024
_VECTOR_CAPABLE = re.compile(
    r"(thread|threadgroup)_position_in_|(dispatch_)?threads_per_(threadgroup|grid)|threadgroups_per_grid"
)
_UNSIGNED = re.compile(r"(?:uint(?:16_t|32_t)?|ushort)([23]?)")
_BUFFER_SPACES = {"device", "constant", "threadgroup"}
_RESOURCES = {"buffer", "threadgroup", "texture", "sampler", "stage_in", "visible_function_table"}


def signature_rules(text: MetalText) -> Iterator[Finding]:
    for kernel in text.kernels:
        yield from _inputs(text, kernel)
        yield from _positions(text, kernel)
        yield from _buffers(text, kernel)
        yield from _threads(text, kernel)
        yield from _kind(text, kernel)
    yield from _uses_of_kernels(text)
    yield from _instantiations(text)
    for index, name, _ in text.attribute_words():
        if name == "function_constant":
            yield text.finding("K7", index, "torch sets no function constants: write the value into the text")


def _inputs(text: MetalText, kernel: Function) -> Iterator[Finding]:
    source = text.source
    for parameter in kernel.parameters:
        if is_position(parameter) or {"texture", "sampler", "stage_in"} & parameter.attributes.keys():
            continue
        words = source.words(parameter.start, parameter.stop)
        pointer = any(source.text(at) in ("*", "&") for at in source.top_level(parameter.start, parameter.stop))
        shown = source.original(parameter.start, parameter.stop)
        if not pointer and words - {"void"}:
            yield text.finding("K1", parameter.start, f"kernel input '{shown}' is passed by value; use constant T&")
        elif pointer and not words & _BUFFER_SPACES:
            message = f"kernel input '{shown}' is in no buffer: device, constant or threadgroup"
            yield text.finding("K1", parameter.start, message)


def _positions(text: MetalText, kernel: Function) -> Iterator[Finding]:
    arities: dict[str, str] = {}
    names = [is_position(parameter) for parameter in kernel.parameters]
    for parameter, name in zip(kernel.parameters, names, strict=True):
        if not name:
            continue
        kind = _type(text, parameter)
        found = _UNSIGNED.fullmatch(kind)
        if found is None:
            yield text.finding(
                "K2", parameter.start, f"[[{name}]] is {kind}; it is uint or ushort, or a vector of those"
            )
        elif _VECTOR_CAPABLE.match(name):
            arities[name] = found.group(1) or "1"
            if len(set(arities.values())) > 1:
                shown = ", ".join(f"{each} has {arity}" for each, arity in arities.items())
                yield text.finding("K2", parameter.start, f"positions have different numbers of elements: {shown}")
                break
    if {"thread_execution_width", "threads_per_simdgroup"} <= set(names):
        message = "thread_execution_width and threads_per_simdgroup are one input; take one of them"
        yield text.finding("K3", kernel.name_at, message)


def _type(text: MetalText, parameter: Parameter) -> str:
    """The type of a parameter by value: its words without qualifiers and without its name."""
    source = text.source
    words = [source.text(at) for at in source.top_level(parameter.start, parameter.stop) if source.is_word(at)]
    return " ".join(word for word in words[:-1] if word not in ("const", "thread", "metal"))


def _buffers(text: MetalText, kernel: Function) -> Iterator[Finding]:
    seen: set[int] = set()
    for parameter in kernel.parameters:
        index = _integer(parameter.attributes.get("buffer"))
        if index is None:
            continue
        if index > MAX_BUFFER_INDEX:
            message = f"buffer index {index}; the highest is {MAX_BUFFER_INDEX}"
            yield text.finding("K4", parameter.start, message)
        if index in seen and "function_constant" not in parameter.attributes:
            yield text.finding("K4", parameter.start, f"buffer index {index} is used twice")
        seen.add(index)


def _integer(argument: str | None) -> int | None:
    """The value of an attribute's argument; None where it depends on a name."""
    if argument is None:
        return None
    try:
        return integer_argument(Attribute("", argument, 0))
    except ShaderCompileError:  # a template parameter or a constant: its value is not in the tokens
        return None


def _threads(text: MetalText, kernel: Function) -> Iterator[Finding]:
    at = kernel.name_at
    stated = kernel.attributes.get("max_total_threads_per_threadgroup")
    if stated is None:
        message = f"{kernel.name} does not state its threads: a launch above the pipeline's limit does nothing"
        yield text.finding("K5", at, message)
    threads = _integer(stated)
    if threads is not None and threads > MAX_THREADS:
        yield text.finding("M2", at, f"{threads} threads in a threadgroup; the most is {MAX_THREADS}")


def _kind(text: MetalText, kernel: Function) -> Iterator[Finding]:
    source, declaration = text.source, kernel.declaration
    assert declaration.parameters is not None
    head = after_template_header(source, declaration.start)
    if "void" not in {source.text(at) for at in source.top_level(head, declaration.parameters)}:
        yield text.finding("K6", kernel.name_at, f"kernel {kernel.name} returns a value")


def _uses_of_kernels(text: MetalText) -> Iterator[Finding]:
    source = text.source
    seen: dict[str, bool] = {}
    for kernel in text.kernels:
        if kernel.name in seen and not (kernel.is_template or seen[kernel.name]):
            yield text.finding("K6", kernel.name_at, f"kernel {kernel.name} is overloaded")
        seen[kernel.name] = kernel.is_template
    for function in text.functions:
        assert function.declaration.body is not None
        for at in range(function.declaration.body, function.declaration.stop):
            if source.text(at) in seen and source.text(at + 1) == "(" and source.text(at - 1) not in (".", "->"):
                yield text.finding("K6", at, f"kernel {source.text(at)} is called")


def _instantiations(text: MetalText) -> Iterator[Finding]:
    source = text.source
    kernels = {kernel.name for kernel in text.kernels}
    for declaration in walk(text.declarations):
        if declaration.kind != "instantiation":
            continue
        words = source.words(declaration.start, declaration.stop)
        if words & kernels and "decltype" not in words:
            message = "instantiate a kernel as `template [[host_name(...)]] [[kernel]] decltype(f<...>) f<...>;`"
            yield text.finding("K6", declaration.start, message)

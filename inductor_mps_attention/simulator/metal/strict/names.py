"""Rules of names: L9, M5, M7, and Surface, the allow-list of what shipping kernels use."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator

from ..tokens import WORD
from ..toolchain import NATIVE
from .findings import Finding, MetalText

_DATA = NATIVE / "strict"
_NEW_IN_3_2 = {"atomic_thread_fence", "coherent", "os_log", "os_log_default", "os_log_debug", "os_log_error"}
_ORDERS = re.compile(r"memory_order_(?!relaxed\b|seq_cst\b)\w+")
_METAL_4 = {"mpp", "tensor", "cooperative_tensor", "tensor_inline", "tensor_handle", "dextents"}
# Words before a name that is used, not declared.
_NOT_A_TYPE = {
    "return", "else", "case", "goto", "new", "delete", "namespace", "using", "struct", "class", "union", "enum",
    "typename", "template", "operator", "sizeof", "throw", "do", "const", "constexpr", "volatile", "static", "inline",
    "signed", "unsigned", "long", "short", "device", "constant", "thread", "threadgroup", "kernel", "public", "private",
    "protected", "friend", "extern", "typedef", "explicit", "default", "and", "or", "not", "xor",
}  # fmt: skip
_KEYWORDS = _NOT_A_TYPE | {"bool", "char", "int", "float", "double", "void", "auto", "this", "if", "for", "while"}
_KEYWORDS |= {"switch", "break", "continue", "true", "false", "nullptr", "static_assert", "try", "catch", "mutable"}
_KEYWORDS |= {"static_cast", "reinterpret_cast", "const_cast", "dynamic_cast", "decltype", "alignas", "alignof"}
_KEYWORDS |= {"__attribute__"}
_NAMESPACES = {"metal", "fast", "precise"}
_TYPE_LIKE = re.compile(r"(packed_)?(float|half|bfloat|u?int|u?short|u?char|u?long|bool)([234](x[234])?|\d+_t)?")


@functools.cache
def _surface() -> dict[str, frozenset[str]]:
    data = json.loads((_DATA / "attested.json").read_text())
    return {key: frozenset(value) for key, value in data.items() if isinstance(value, list)}


@functools.cache
def _reserved() -> frozenset[str]:
    """Reserved names; from 4.1 on there is a metal::bfloat16 too."""
    return frozenset(json.loads((_DATA / "reserved.json").read_text())["names"]) | {"bfloat16"}


def name_rules(text: MetalText) -> Iterator[Finding]:
    yield from _reserved_names(text)
    yield from _reserved_macros(text)
    yield from _versions(text)
    yield from _library_names(text)
    yield from _calls(text)
    for index, name, _ in text.attribute_words():
        if name not in _surface()["attributes"]:
            yield text.finding("Surface", index, f"no shipping kernel uses the attribute [[{name}]]")
    for number, line in enumerate(text.raw.splitlines(), 1):
        found = re.match(r"\s*#\s*include\s*<((?:metal_|Metal|simd)[^>]*)>", line)
        if found and found.group(1) not in _surface()["headers"]:
            yield Finding(number, "Surface", f"no shipping kernel includes <{found.group(1)}>")


def _reserved_names(text: MetalText) -> Iterator[Finding]:
    source, seen = text.source, set()
    for index, token in enumerate(source.tokens):
        name = token.text
        if token.kind != WORD or name in seen or name in _KEYWORDS or name not in _reserved():
            continue
        if _declares(text, index):
            seen.add(name)
            yield text.finding("L9", index, f"'{name}' is a reserved name")


def _declares(text: MetalText, index: int) -> bool:
    """Whether the name at `index` is declared there: a type stands before it, and the end of a declarator behind."""
    source = text.source
    if source.text(index + 1) not in ("=", ";", ",", ")", "[", "(", "{", ":"):
        return source.text(index - 1) in ("struct", "class", "namespace") and source.text(index) != "metal"
    if source.text(index - 1) in ("struct", "class", "enum", "union", "using"):
        return True
    before = source.text(index - 1)
    if before in ("*", "&"):
        return bool(text.address_spaces(index - 1))
    if before == ">":
        return source.opening_angle(index - 1) is not None and source.text(index + 1) != "("
    return source.is_word(index - 1) and (before not in _NOT_A_TYPE or before in ("int", "long", "short", "unsigned"))


def _reserved_macros(text: MetalText) -> Iterator[Finding]:
    """Reserved macros never reach the tokens: they are looked for in the text as it was written."""
    for number, line in enumerate(text.raw.splitlines(), 1):
        code = line.split("//")[0]
        found = re.match(r"\s*#\s*define\s+(\w+)", code) or re.search(
            r"\b(?:float|half|bfloat|int|uint|long|ulong|auto|bool)\d?\s+([A-Z][A-Z0-9_]*)\s*[=;,)\[]", code
        )
        if found and found.group(1) in _reserved():
            yield Finding(number, "L9", f"'{found.group(1)}' is a reserved name")


def _versions(text: MetalText) -> Iterator[Finding]:
    source, own = text.source, text.declared_names
    for index, token in enumerate(source.tokens):
        if token.kind != WORD or source.text(index - 1) in (".", "->"):
            continue
        name, following = token.text, source.text(index + 1)
        if name in _NEW_IN_3_2 and name not in own and following in ("(", ".", "::"):
            yield text.finding("M5", index, f"'{name}' does not exist before Metal 3.2")
        elif _ORDERS.fullmatch(name):
            yield text.finding("M5", index, f"'{name}': orders are relaxed, and seq_cst from Metal 3.2 on")
        elif name in _METAL_4 and name not in own and following in ("::", "<"):
            yield text.finding("M7", index, f"'{name}' does not exist before Metal 4")


def _library_names(text: MetalText) -> Iterator[Finding]:
    """Names written with metal::, whatever follows."""
    source, names = text.source, _surface()["names"]
    for index, token in enumerate(source.tokens):
        if token.text != "metal" or source.text(index + 1) != "::" or source.text(index - 1) == "::":
            continue
        name, at = source.text(index + 2), index + 2
        if name in _NAMESPACES and source.text(at + 1) == "::":
            name = f"{name}::{source.text(at + 2)}"
        known = name in names or name in text.declared_names or name in _METAL_4
        if not known and not _TYPE_LIKE.fullmatch(name) and source.is_word(at):
            yield text.finding("Surface", index, f"no shipping kernel uses metal::{name}")


def _calls(text: MetalText) -> Iterator[Finding]:
    """Calls without metal::, of names that the text itself does not declare."""
    source = text.source
    attributes = {index for index, _, _ in text.attribute_words()}
    for index, token in enumerate(source.tokens):
        called = token.kind == WORD and source.text(index + 1) == "(" and token.text not in _KEYWORDS
        if called and index not in attributes and not _is_known(text, index):
            yield text.finding("Surface", index, f"no shipping kernel calls {token.text}()")


def _is_known(text: MetalText, index: int) -> bool:
    """Whether a called name is attested, a type, or declared by the text."""
    source, name = text.source, text.source.text(index)
    before, scope = source.text(index - 1), source.text(index - 2)
    if name in text.declared_names or name.startswith("__builtin_") or name in _NEW_IN_3_2:
        return True
    if before in (".", "->"):
        return name in _surface()["members"]
    if before == "::":  # what follows metal:: is looked at as a library name
        unscoped = scope in ("fast", "precise") and source.text(index - 3) != "::"
        return not unscoped or f"{scope}::{name}" in _surface()["names"]
    attested = name in _surface()["names"] or _TYPE_LIKE.fullmatch(name) is not None
    return attested or _is_declared_here(text, index)


def _is_declared_here(text: MetalText, index: int) -> bool:
    """Whether the declaration of a local name looks like a call: a type stands before it."""
    before = text.source.text(index - 1)
    after_type = text.source.is_word(index - 1) and before not in _KEYWORDS
    return after_type or (before == ">" and text.source.opening_angle(index - 1) is not None)

"""Rules that need single tokens or lines only: V4, L4, L5, L7, L8, L10, L11, L13, T6, T13, T16."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..tokens import NUMBER, WORD
from .findings import Finding, MetalText

MAX_NESTING = 200
_PRAGMA = re.compile(r"\s*#\s*pragma\s+(.*)")
_PRAGMAS = re.compile(
    r"once|unroll\b.*|clang loop unroll(_count)?\s*\(.*\)|METAL fp (contract\(off\)|math_mode\(safe\))"
    r"|clang diagnostic (push|pop|ignored .*)"
)
_PLAIN_FLOAT = re.compile(r"(\d[\d']*\.[\d']*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")
_ASSEMBLY = {"asm", "__asm", "__asm__"}


def text_rules(text: MetalText) -> Iterator[Finding]:
    yield from _lines(text.raw)
    yield from _headers(text)
    yield from _words(text)
    yield from _literals(text)
    yield from _nesting(text)
    yield from _quotients(text)


def _lines(raw: str) -> Iterator[Finding]:
    for number, line in enumerate(raw.splitlines(), 1):
        if not line.isascii():
            character = next(each for each in line if not each.isascii())
            yield Finding(number, "V4", f"{character!a} is not ASCII: PyTorch makes no source string of it")
        pragma = _PRAGMA.match(line)
        if pragma and not _PRAGMAS.fullmatch(pragma.group(1).strip()):
            private = "METAL internals" in line
            rule = "L10" if private else "L13"
            yield Finding(number, rule, f"no shipping kernel may depend on #pragma {pragma.group(1).strip()}")


def _headers(text: MetalText) -> Iterator[Finding]:
    included = re.findall(r"^\s*#\s*include\s*<(metal_\w+)>", text.raw, re.MULTILINE)
    words = {token.text for token in text.source.tokens if token.kind == WORD}
    if "metal_stdlib" not in included:
        yield Finding(1, "T16", "the text does not include <metal_stdlib>")
    if words & {"simdgroup_matrix", "simdgroup_load"} and "metal_simdgroup_matrix" not in included:
        yield Finding(1, "T16", "the text uses matrices and does not include <metal_simdgroup_matrix>")
    if "using namespace metal" not in text.raw:
        yield Finding(1, "T16", "the text does not say `using namespace metal;`")


def _words(text: MetalText) -> Iterator[Finding]:
    source = text.source
    bodies = [(each.declaration.body, each.declaration.stop) for each in text.functions]
    for index, token in enumerate(source.tokens):
        if token.kind != WORD:
            continue
        if token.text == "double":
            yield text.finding("L4", index, "there is no double in Metal")
        elif token.text in _ASSEMBLY:
            yield text.finding("L10", index, "inline assembly does not build with every toolchain")
        elif token.text == "union":
            yield text.finding("L8", index, "unions were refused by older compilers")
        elif token.text == "static" and any(body is not None and body < index < stop for body, stop in bodies):
            yield text.finding("L7", index, "a static variable in a function was refused by older compilers")


def _literals(text: MetalText) -> Iterator[Finding]:
    for index in text.source.numbers():
        literal = text.source.text(index)
        if _PLAIN_FLOAT.fullmatch(literal):
            yield text.finding("T6", index, f"literal {literal} does not say its type: write f or h")
        elif literal[:2].lower() != "0x" and literal.lower().endswith("bf"):
            yield text.finding("T6", index, f"literal {literal}: no shipping kernel writes bfloat literals")


def _nesting(text: MetalText) -> Iterator[Finding]:
    depth = 0
    for index, token in enumerate(text.source.tokens):
        if token.kind == NUMBER or token.text not in ("(", "[", "{", ")", "]", "}"):
            continue
        depth += 1 if token.text in ("(", "[", "{") else -1
        if depth == MAX_NESTING and token.text in ("(", "[", "{"):
            yield text.finding("L11", index, f"brackets are nested {depth} deep; 256 are a fatal error")


def _quotients(text: MetalText) -> Iterator[Finding]:
    """(a / b) % c, without the parentheses too."""
    source = text.source
    for index, token in enumerate(source.tokens):
        if token.text != "%":
            continue
        at = index - 1
        if source.text(at) == ")":
            opening = source.partner[at]
            operators = [source.text(inner) for inner in source.top_level(opening + 1, at)]
            divides = "/" in operators and not source.is_word(opening - 1)
        else:
            divides = source.text(at - 1) == "/"
        if divides:
            yield text.finding("T13", index, "a quotient's remainder was miscompiled: keep the quotient in a variable")

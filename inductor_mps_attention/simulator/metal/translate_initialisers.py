"""`T x[N] = {[0 ... N - 1] = v};`, designated elements of arrays, which few C++ compilers take -> an array of zeros,
and statements behind the declaration that fill it.
"""

from __future__ import annotations

from .errors import ShaderCompileError
from .source import Source

_CONSTANTS = {"const", "constexpr", "constant"}
_STATEMENT_STARTS = {"{", "}", ";", ")", ":"}


def translate_designated_elements(source: Source) -> None:
    """Edits every initialiser with designated elements. Raises for those of constants, which cannot be filled."""
    for index, token in enumerate(source.tokens):
        if token.text == "{" and source.text(index - 1) in ("=", "]") and _is_designated(source, index + 1):
            _translate_one(source, index)


def _is_designated(source: Source, index: int) -> bool:
    return source.text(index) == "[" and source.text(source.partner[index] + 1) == "="


def _translate_one(source: Source, brace: int) -> None:
    end = source.partner[brace]
    declarator = brace - 1 if source.text(brace - 1) == "=" else brace
    name_at = _before_dimensions(source, declarator)
    start = name_at
    while start > 0 and source.text(start - 1) not in _STATEMENT_STARTS:
        start -= 1
    shown = source.original(start, end + 1)
    if not source.is_word(name_at) or _CONSTANTS & source.words(start, name_at):
        message = f"'{shown}': designated elements are supported in the variables of a function, without const"
        raise ShaderCompileError(message, source.line(brace))
    name, filling, position = source.text(name_at), "", "0"
    for first, stop in source.split_commas(brace + 1, end):
        low, high, value = position, position, first
        if _is_designated(source, first):
            closing = source.partner[first]
            dots = next((at for at in range(first, closing) if source.text(at) == "..."), closing)
            low, value = source.edited(first + 1, dots), closing + 2
            high = low if dots == closing else source.edited(dots + 1, closing)
        filling += f" ::msl_::fill_elements({name}, {low}, {high}, {source.edited(value, stop)});"
        position = f"({high}) + 1"
    source.replace(brace, end + 1, "{}")
    semicolon = end
    while source.text(semicolon) != ";":
        semicolon = source.skip(semicolon)
    source.append(semicolon, filling)


def _before_dimensions(source: Source, at: int) -> int:
    """The index of the name before `[N][M]` that end at `at`."""
    at -= 1
    while source.text(at) == "]":
        at = source.partner[at] - 1
    return at

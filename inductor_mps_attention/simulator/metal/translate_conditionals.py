"""`c ? a : b` with an integer and a bfloat, which is a bfloat in Metal and has no type in C++, as each converts to the
other there. Edits the arms of such expressions, and of no others as far as tokens show; texts without bfloat stay.
"""

from __future__ import annotations

from .source import Source
from .tokens import NUMBER

_ENDS = {";", ",", ")", "]", "}", ":"}
_ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
# An arm with one of these is left alone: another expression, or what tokens do not show the end of.
_NOT_SIMPLE = _ASSIGNMENTS | {"?", "{", "<", ">"}
_LONGEST_ARM = 16

Span = tuple[int, int]


def translate_conditionals(source: Source) -> None:
    """Goes last among the edits of expressions, as it repeats arms with their edits."""
    if not any(token.text.startswith("bfloat") for token in source.tokens):
        return
    open_questions: list[list[int]] = [[]]  # for each open bracket, those without their colon
    for index, token in enumerate(source.tokens):
        if token.text in ("(", "[", "{"):
            open_questions.append([])
        elif token.text in (")", "]", "}"):
            open_questions.pop()
        elif token.text == ";":
            open_questions[-1].clear()
        elif token.text == "?":
            open_questions[-1].append(index)
        elif token.text == ":" and open_questions[-1]:
            _translate_arms(source, open_questions[-1].pop(), index)


def _translate_arms(source: Source, question: int, colon: int) -> None:
    arms = (question + 1, colon), (colon + 1, _end(source, colon + 1))
    literal = [_is_literal(source, arm) for arm in arms]
    if all(literal):
        return
    if any(literal):
        start, stop = arms[literal.index(True)]
        source.replace(start, stop, f" ::msl_::Literal<{source.edited(start, stop)}>()")
    elif all(_is_simple(source, arm) for arm in arms):
        first, second = (source.edited(*arm) for arm in arms)
        source.replace(*arms[0], f"(({first}), ::msl_::Beside<decltype({second})>())")
        source.replace(*arms[1], f"(({second}), ::msl_::Beside<decltype({first})>())")


def _end(source: Source, index: int) -> int:
    while source.text(index) not in _ENDS and index < len(source.tokens):
        index = source.skip(index)
    return index


def _is_literal(source: Source, arm: Span) -> bool:
    """Whether an arm is an integer literal, with or without a minus."""
    start, stop = arm
    number = start + (source.text(start) == "-")
    return number == stop - 1 and source.tokens[number].kind == NUMBER and _is_integer(source.edited(number, stop))


def _is_integer(number: str) -> bool:
    return number.replace("'", "").rstrip("uUlL").isdigit() or number[:2] in ("0x", "0X", "0b", "0B")


def _is_simple(source: Source, arm: Span) -> bool:
    start, stop = arm
    if not 0 < stop - start <= _LONGEST_ARM:
        return False
    return not any(source.text(at) in _NOT_SIMPLE or source.is_attribute(at) for at in range(start, stop))

"""A tokenized Metal text together with the edits that turn it into C++. The tokens never change; edits are
per token.

A removed or replaced token keeps the white space before it, so every line of the C++ text has the number of
its Metal line.
"""

from __future__ import annotations

from collections.abc import Iterator

from .tokens import NUMBER, WORD, Token, bracket_partners, plain, tokenize

_ANGLE_STOPS = {";", "{", "}", "&&", "||"}


class Source:
    """Tokens, bracket partners, and what each token is replaced with."""

    def __init__(self, text: str, file: str = "kernel.metal", *, keeps_pragmas: bool = False):
        self.tokens: list[Token] = tokenize(text, file, keeps_pragmas=keeps_pragmas)
        self.partner: list[int] = bracket_partners(self.tokens)
        self.edits: dict[int, str] = {}
        self.suffix: dict[int, str] = {}

    def text(self, index: int) -> str:
        """The Metal text of one token; empty before the first and after the last."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def is_word(self, index: int) -> bool:
        return 0 <= index < len(self.tokens) and self.tokens[index].kind == WORD

    def line(self, index: int) -> int:
        return self.tokens[min(index, len(self.tokens) - 1)].line

    def remove(self, start: int, stop: int) -> None:
        for index in range(start, stop):
            self.edits[index] = ""

    def replace(self, start: int, stop: int, text: str) -> None:
        """Tokens start..stop-1 become `text` in one piece, at the first one's place."""
        self.remove(start, stop)
        self.edits[start] = text

    def append(self, index: int, text: str) -> None:
        """`text` follows the token at `index`, whatever that token becomes."""
        self.suffix[index] = self.suffix.get(index, "") + text

    def original(self, start: int, stop: int) -> str:
        """The Metal text of a span on one line, for messages."""
        return plain(self.tokens[start:stop])

    def edited(self, start: int, stop: int) -> str:
        """The C++ text of a span on one line, with the edits made so far."""
        edits = self.edits
        pieces = (edits.get(index, self.tokens[index].text) for index in range(start, stop))
        return " ".join(piece for piece in pieces if piece)

    def render(self) -> str:
        """The whole C++ text, line for line the Metal text."""
        edits, suffix = self.edits, self.suffix
        pieces: list[str] = []
        for index, token in enumerate(self.tokens):
            pieces.append(token.space)
            pieces.append(edits.get(index, token.text))
            if index in suffix:
                pieces.append(suffix[index])
        return "".join(pieces)

    # Structure
    # ---------------------------------------------------------------------------------------------------

    def is_attribute(self, index: int) -> bool:
        return self.text(index) == "[" and self.text(index + 1) == "["

    def after_attribute(self, index: int) -> int:
        """The index after an attribute that starts at `index`."""
        return self.partner[index] + 1

    def closing_angle(self, index: int) -> int | None:
        """The `>` that closes the `<` at `index`, or None where `<` is a comparison."""
        depth, at = 0, index
        while at < len(self.tokens):
            text = self.tokens[at].text
            if text in ("(", "[") and self.partner[at] > at:
                at = self.partner[at]
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return at
            elif text in _ANGLE_STOPS or text == ")":
                return None
            at += 1
        return None

    def template_header_end(self, index: int) -> int | None:
        """The `>` of `template <`, whose parameters may have defaults with && and ||; `<` is at `index`."""
        depth, at = 0, index
        while at < len(self.tokens):
            text = self.tokens[at].text
            if text in ("(", "[") and self.partner[at] > at:
                at = self.partner[at]
            elif text in (";", "{", "}", ")"):
                return None
            depth += (text == "<") - (text == ">")
            if depth == 0:
                return at
            at += 1
        return None

    def opening_angle(self, index: int) -> int | None:
        """The `<` that the `>` at `index` closes."""
        depth, at = 0, index
        while at >= 0:
            text = self.tokens[at].text
            if text in (")", "]"):
                at = self.partner[at]
            elif text == ">":
                depth += 1
            elif text == "<":
                depth -= 1
                if depth == 0:
                    return at
            elif text in _ANGLE_STOPS or text == "(":
                return None
            at -= 1
        return None

    def skip(self, index: int) -> int:
        """The index after the token at `index`, or after the whole bracket that it opens."""
        return self.partner[index] + 1 if self.partner[index] > index else index + 1

    def is_template_bracket(self, index: int) -> bool:
        """Whether the `<` at `index` may open template arguments: it follows a name that no comparison starts
        with.
        """
        return self.text(index) == "<" and self.is_word(index - 1) and self.text(index - 1) != "operator"

    def top_level(self, start: int, stop: int) -> Iterator[int]:
        """Indices of a span outside attributes, brackets and template arguments; an opening bracket itself is
        given.
        """
        at = start
        while at < stop:
            if self.is_attribute(at):
                at = self.after_attribute(at)
                continue
            if self.is_template_bracket(at):
                closing = self.closing_angle(at)
                if closing is not None and closing < stop:
                    at = closing + 1
                    continue
            yield at
            at = self.skip(at)

    def split_commas(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The comma-separated pieces of a span as (start, stop); an empty span has none."""
        if start >= stop:
            return []
        pieces, begin = [], start
        for index in self.top_level(start, stop):
            if self.text(index) == ",":
                pieces.append((begin, index))
                begin = index + 1
        pieces.append((begin, stop))
        return pieces

    def words(self, start: int, stop: int) -> set[str]:
        return {token.text for token in self.tokens[start:stop] if token.kind == WORD}

    def numbers(self) -> Iterator[int]:
        return (index for index, token in enumerate(self.tokens) if token.kind == NUMBER)

"""Preprocessed Metal text -> tokens, and back. Knows the lexical rules of the language and nothing of its
grammar.

`<<` and `>>` are two tokens each, so that template brackets can be matched; white space, comments and line
markers belong to the token that follows them, so that the text of a token list is the text that was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .errors import ShaderCompileError

WORD, NUMBER, STRING, PUNCTUATION, END = "word", "number", "string", "punctuation", "end"

_PATTERN = re.compile(
    r"""
    (?P<space>(?:\s|\\\n|//[^\n]*|/\*.*?\*/)+)
  | (?P<directive>\#(?:[^\n\\]|\\.)*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<punctuation>->\*|->|::|\.\.\.|<<=|>>=|<=|>=|==|!=|&&|\|\||\+\+|--
      |[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,.()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_LINE_MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)(?:\s+"([^"]*)")?')
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


class HeaderLine(int):
    """A line number of an included file, which it names."""

    file: str

    def __new__(cls, number: int, file: str) -> HeaderLine:
        line = super().__new__(cls, number)
        line.file = file
        return line


class Token:
    """One token. `space` is what stands before it; `file` and `line` say where it was written."""

    __slots__ = ("file", "kind", "line", "space", "text")

    def __init__(self, kind: str, text: str, space: str, file: str, line: int):
        self.kind = kind
        self.text = text
        self.space = space
        self.file = file
        self.line = line

    def __repr__(self) -> str:
        return f"Token({self.text!r}, line {self.line})"


def tokenize(text: str, file: str = "kernel.metal", *, keeps_pragmas: bool = False) -> list[Token]:
    """The tokens of `text`, with one token of kind END last. Pragmas vanish, or stay as white space: none of
    them changes what a kernel computes.

    Raises ShaderCompileError with the line of a character that starts no token.
    """
    tokens: list[Token] = []
    own, line, position, space = file, 1, 0, ""
    for found in _PATTERN.finditer(text):
        if found.start() != position:
            break
        position = found.end()
        kind, piece = str(found.lastgroup), found.group()
        if kind == "space":
            space += _without_comments(piece)
            line += piece.count("\n")
        elif kind == "directive":
            marker = _LINE_MARKER.match(piece)
            if marker:
                file, line = marker.group(2) or file, int(marker.group(1)) - 1
                space += piece
            elif not re.match(r"#\s*(pragma|ident)\b", piece):
                raise ShaderCompileError(f"directive '{piece.split()[0]}' is left after preprocessing", line)
            elif keeps_pragmas:
                space += piece
            line += piece.count("\n")
        else:
            tokens.append(Token(kind, piece, space, file, line if file == own else HeaderLine(line, file)))
            space = ""
    if position != len(text):
        raise ShaderCompileError(f"unexpected character {text[position]!r}", line)
    tokens.append(Token(END, "", space, file, line))
    return tokens


def _without_comments(space: str) -> str:
    """A comment becomes a blank and its line breaks."""
    if "/" not in space:
        return space
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: " " + "\n" * m.group().count("\n"), space, flags=re.DOTALL)


def plain(tokens: Iterable[Token]) -> str:
    """The tokens on one line with one blank between them, for messages and comparisons."""
    return " ".join(token.text for token in tokens if token.text)


def bracket_partners(tokens: Sequence[Token]) -> list[int]:
    """For each opening bracket ( [ { the index of its closing one and back; -1 elsewhere. Raises on a stray
    bracket.
    """
    partners = [-1] * len(tokens)
    stack: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != PUNCTUATION:
            continue
        if token.text in _BRACKETS:
            stack.append(index)
        elif token.text in ")]}":
            if not stack or _BRACKETS[tokens[stack[-1]].text] != token.text:
                raise ShaderCompileError(f"'{token.text}' closes nothing", token.line)
            opening = stack.pop()
            partners[opening], partners[index] = index, opening
    if stack:
        token = tokens[stack[-1]]
        raise ShaderCompileError(f"'{token.text}' is never closed", token.line)
    return partners

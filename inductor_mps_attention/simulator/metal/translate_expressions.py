"""Spellings inside expressions and types that C++ does not have: literals, address spaces, swizzles. Edits
tokens in place.
"""

from __future__ import annotations

import re

from .errors import ShaderCompileError
from .source import Source
from .tokens import WORD
from .translate_declarations import ADDRESS_SPACES, Declaration, walk

_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_DECIMAL = re.compile(r"[\d']*\.?[\d']*(?:[eE][+-]?\d+)?")
_ASSIGNMENTS = {"=", "+=", "-=", "*=", "/="}
_SPECIFIERS = ADDRESS_SPACES | {"const", "constexpr", "static", "inline", "volatile", "extern"}
_REFUSED_WORDS = {
    "double": "there is no double in Metal",
    "asm": "inline assembly cannot be simulated",
    "__asm": "inline assembly cannot be simulated",
    "__asm__": "inline assembly cannot be simulated",
    "vertex": "only compute kernels can be simulated",
    "fragment": "only compute kernels can be simulated",
    "throw": "there are no exceptions in Metal",
    "try": "there are no exceptions in Metal",
}
# Types, by their names; each is one where template arguments, `::` or a name follow.
_RESOURCES = (
    (re.compile(r"(texture(1d|2d|3d|cube)|depth(2d|cube))(_ms)?(_array)?|texture_buffer|sampler"),
     "textures and samplers cannot be simulated"),
    (re.compile(r"intersector|intersection_(query|params|result|function_table)|raytracing|acceleration_structure"
                r"|(primitive|instance)_acceleration_structure"), "ray tracing cannot be simulated"),
    (re.compile(r"visible_function_table"), "function tables cannot be simulated"),
    (re.compile(r"imageblock"), "image blocks cannot be simulated"),
    (re.compile(r"command_buffer|(compute|render)_command|(compute|render)_pipeline_state"),
     "indirect commands cannot be simulated"),
    (re.compile(r"tensor|tensor_handle|tensor_inline|cooperative_tensor|mpp"),
     "tensors of Metal 4 cannot be simulated"),
)  # fmt: skip


def translate_literals(source: Source) -> None:
    """A floating literal is a float unless its suffix says half or bfloat: Metal has no double."""
    for index in source.numbers():
        text = source.text(index)
        if text[:2] in ("0x", "0X", "0b", "0B"):
            continue
        if text[-2:] in ("bf", "BF"):
            source.edits[index] = f"bfloat({_float_literal(text[:-2])})"
        elif text[-1] in "hH":
            source.edits[index] = f"half({_float_literal(text[:-1])})"
        elif _DECIMAL.fullmatch(text) and not text.replace("'", "").isdigit():
            source.edits[index] = text + "f"
        elif text[-1] in "lL" and not text.rstrip("uUlL").replace("'", "").isdigit():
            raise ShaderCompileError(f"literal {text}: there is no long double in Metal", source.line(index))


def _float_literal(digits: str) -> str:
    return digits + ("f" if "." in digits or "e" in digits.lower() else ".0f")


def refuse_words(source: Source) -> None:
    """Words that name something which the engine cannot run."""
    for index, token in enumerate(source.tokens):
        if token.kind == WORD and token.text in _REFUSED_WORDS and index not in source.edits:
            raise ShaderCompileError(f"'{token.text}': {_REFUSED_WORDS[token.text]}", token.line)


def refuse_resources(source: Source, declarations: list[Declaration]) -> None:
    """Types of Metal's library that stand for hardware which the engine has not."""
    own = {declaration.name for declaration in walk(declarations)}
    for index, token in enumerate(source.tokens):
        reason = next((reason for pattern, reason in _RESOURCES if pattern.fullmatch(token.text)), None)
        if reason is None or token.kind != WORD or token.text in own or source.text(index - 1) in (".", "->"):
            continue
        if source.text(index + 1) in ("<", "::") or source.is_word(index + 1):
            raise ShaderCompileError(f"'{token.text}': {reason}", token.line)


def erase_address_spaces(source: Source) -> None:
    """Address spaces vanish: the CPU has one. `constant` becomes const, where the declaration does not say so
    itself.
    """
    for index, token in enumerate(source.tokens):
        if token.text == "coherent" and source.text(index + 1) == "(" and source.text(index + 3) == ")":
            source.remove(index, index + 4)  # coherent(system): memory is coherent here
        if token.kind != WORD or token.text not in ADDRESS_SPACES or index in source.edits:
            continue
        needs_const = token.text == "constant" and not _says_const(source, index) and source.text(index - 1) != ")"
        source.edits[index] = "const" if needs_const else ""


def _says_const(source: Source, index: int) -> bool:
    """Whether const or constexpr stands among the specifiers around `index`."""
    constants = ("const", "constexpr")
    for step in (-1, 1):
        at = index + step
        while source.text(at) in _SPECIFIERS:
            if source.text(at) in constants:
                return True
            at += step
    # `constant T const&` and `const T constant&`
    after_type = source.text(index + 2) in constants and source.is_word(index + 1)
    before_type = source.text(index - 2) in constants and source.is_word(index - 1)
    return after_type or before_type


def translate_swizzles(source: Source, declarations: list[Declaration]) -> None:
    """`v.xyz` -> `v.template swz<0,1,2>()`, before an assignment `lswz`. A member that the text itself
    declares is left alone.
    """
    members = _swizzle_like_members(source, declarations)
    for index, token in enumerate(source.tokens):
        if token.kind != WORD or not _SWIZZLE.fullmatch(token.text) or token.text in members:
            continue
        if source.text(index - 1) not in (".", "->") or source.text(index + 1) == "(":
            continue
        letters = "xyzw" if token.text[0] in "xyzw" else "rgba"
        lanes = ",".join(str(letters.index(letter)) for letter in token.text)
        name = "lswz" if source.text(index + 1) in _ASSIGNMENTS else "swz"
        source.edits[index] = f"template {name}<{lanes}>()"


def _swizzle_like_members(source: Source, declarations: list[Declaration]) -> set[str]:
    members: set[str] = set()
    for declaration in walk(declarations):
        if declaration.kind != "class":
            continue
        for member in declaration.members:
            if member.kind != "other":
                continue
            for index in range(member.start, member.stop):
                names = source.is_word(index) and _SWIZZLE.fullmatch(source.text(index))
                if names and source.text(index + 1) in (";", ",", "=", "[", "{"):
                    members.add(source.text(index))
    return members

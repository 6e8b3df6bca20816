"""The rules that every compilation enforces: L1, L3, L4, L14, L15 and K8, as far as single tokens show them; and L10,
which only the check of our own text does, since shipping projects use private names.

Only what no shipping text does is refused. Each rule has an id, so that a report can be looked up and a test can
name it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ShaderCompileError
from ..preprocess import FILE_NAME
from ..source import Source
from ..tokens import WORD

# Word -> (rule, reason).
_WORDS = {
    **dict.fromkeys(("goto", "new", "delete", "virtual", "thread_local", "register"), ("L3", "is not part of Metal")),
    **dict.fromkeys(("dynamic_cast", "typeid", "catch"), ("L3", "is not part of Metal")),
    **dict.fromkeys(("co_await", "co_return", "co_yield"), ("L3", "is not part of Metal")),
}
# What may stand before a subscript; before anything else `[` opens a lambda.
_SUBSCRIPTED = {")", "]", ">", "}", "this"}
_FUNCTION_ATTRIBUTES = {"max_total_threads_per_threadgroup", "host_name", "kernel"}
_FUNCTION_KINDS = {"kernel", "vertex", "fragment"}
# Words that no declaration may give a new meaning; `float4` and the like are names, which may be hidden.
_SCALARS = {"half", "bfloat"}
_TYPES = {
    "bool",
    "char",
    "short",
    "int",
    "long",
    "float",
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "size_t",
    "auto",
} | _SCALARS
_PRIVATE_PREFIXES = ("__metal_", "air.")


@dataclass(frozen=True)
class Violation:
    """One broken rule: its id, the line of the Metal text, and a sentence."""

    rule: str
    line: int
    message: str
    file: str = FILE_NAME


def violations(source: Source) -> list[Violation]:
    """The broken rules of a text, in its order."""
    found = []
    for index, token in enumerate(source.tokens):
        rule = _broken_rule(source, index, token.text, token.kind == WORD)
        if rule is not None:
            found.append(Violation(rule[0], token.line, rule[1], token.file))
    return found


def refuse_violations(source: Source) -> None:
    """Raises ShaderCompileError with the first broken rule, and how many there are."""
    found = [violation for violation in violations(source) if violation.rule != "L10"]
    if found:
        first = found[0]
        more = f" ({len(found)} violations in all)" if len(found) > 1 else ""
        raise ShaderCompileError(f"{first.message}{more} [strict {first.rule}]", first.line)


def _broken_rule(source: Source, index: int, text: str, is_word: bool) -> tuple[str, str] | None:
    if not is_word:
        return _lambda(source, index) or _misplaced(source, index) if text == "[" else None
    if text == "restrict" and source.text(index - 1) in ("*", "&") and source.is_word(index + 1):
        return "L14", "'restrict' is no word of Metal: write __restrict"
    if text in _SCALARS and source.text(index - 1) in _TYPES and not source.is_word(index + 1):
        return "L15", f"'{text}' is a type, and names nothing else"
    if text in _WORDS:
        rule, reason = _WORDS[text]
        return rule, f"'{text}' {reason}"
    if text == "long" and source.text(index + 1) in ("long", "double"):
        return "L4", f"'long {source.text(index + 1)}' does not exist in Metal: long has 64 bits"
    if text == "std" and source.text(index + 1) == "::":
        return "L3", "the C++ standard library does not exist in Metal"
    if text.startswith(_PRIVATE_PREFIXES):
        return "L10", f"'{text}' is private to Apple's own headers and changes between versions"
    return None


def _misplaced(source: Source, index: int) -> tuple[str, str] | None:
    """An attribute of a function where Apple's compiler takes it for one of a type, or does not expect it."""
    if not source.is_attribute(index) or source.text(index + 2) not in _FUNCTION_ATTRIBUTES:
        return None
    name = source.text(index + 2)
    if source.text(index - 1) == ")" and source.text(source.after_attribute(index)) == "{":
        return "K8", f"[[{name}]] stands behind the parameters: it belongs before the function"
    if source.text(index - 1) in _FUNCTION_KINDS:
        return "K8", f"[[{name}]] stands behind '{source.text(index - 1)}': it belongs before it"
    return None


def _lambda(source: Source, index: int) -> tuple[str, str] | None:
    """A lambda's `[`: neither an attribute, nor behind something that can be indexed or declared as an array."""
    before = source.text(index - 1)
    attribute = source.is_attribute(index) or source.is_attribute(index - 1)
    if attribute or (source.is_word(index - 1) and before != "return") or before in _SUBSCRIPTED:
        return None
    if source.text(source.partner[index] + 1) not in ("(", "{"):
        return None
    return "L1", "lambdas do not exist before Metal 3.2"

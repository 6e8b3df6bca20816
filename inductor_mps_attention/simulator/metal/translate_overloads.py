"""Overloads and specialisations that differ in their address spaces, which are erased: of those that are the same C++
text one stays, and calls that fit several alike choose the first, as they do the same to different memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source
from .translate_declarations import ADDRESS_SPACES, Declaration

# By width. Texts count in narrower types where threadgroup memory is addressed, which is no other function.
_UNSIGNED = ("uchar", "ushort", "uint", "ulong", "size_t")
_WIDTHS = {f"{name}{lanes}": width for width, name in enumerate(_UNSIGNED) for lanes in ("", "2", "3", "4")}


@dataclass
class _Kept:
    declaration: Declaration
    erased: bool  # whether an address space was erased from it


def drop_duplicates(source: Source, declarations: list[Declaration]) -> None:
    """Goes after all other edits. Where two functions differ in address spaces and in the widths of unsigned integers,
    calls with other integers would be ambiguous: the one that stays has the wider of both.
    """
    namespaces: dict[str, dict[str, _Kept]] = {}
    _drop_in_scope(source, declarations, "", namespaces)


def order_overloads(source: Source, declarations: list[Declaration]) -> None:
    """Functions of one name that are told apart by address spaces and by widths of integers, with bodies of their own:
    the integers of later ones become such as make a call fit worse.
    """
    functions: dict[str, list[Declaration]] = {}
    for declaration in declarations:
        order_overloads(source, declaration.members)
        if (
            declaration.kind != "function"
            or source.edits.get(declaration.start) == ""
            or not _has_spaces(source, declaration)
        ):
            continue
        earlier = functions.setdefault(declaration.name, [])
        for other in earlier:
            _weaken(source, other, declaration)
        earlier.append(declaration)


def _has_spaces(source: Source, declaration: Declaration) -> bool:
    return any(source.tokens[at].text in ADDRESS_SPACES for at in range(declaration.start, declaration.stop))


def _weaken(source: Source, first: Declaration, second: Declaration) -> None:
    pairs = list(zip(_parameter_types(source, first), _parameter_types(source, second), strict=False))
    originals = [(source.original(*own), source.original(*other)) for own, other in pairs]
    texts = [(source.edited(*own).split(), source.edited(*other).split()) for own, other in pairs]
    same_but_for_widths = all([*map(_any_width, own)] == [*map(_any_width, other)] for own, other in texts)
    if not same_but_for_widths or all(own == other for own, other in texts):
        return
    if all((own == other) == (left == right) for (own, other), (left, right) in zip(originals, texts, strict=True)):
        return  # the address spaces are the same
    for (own, other), (_, span) in zip(texts, pairs, strict=True):
        for at in range(*span):
            if own != other and source.edited(at, at + 1) in _UNSIGNED:  # vectors do not convert
                source.edits[at] = f"::msl_::Weaker<{source.edited(at, at + 1)}>"


def _parameter_types(source: Source, declaration: Declaration) -> list[tuple[int, int]]:
    """Spans of the parameters of a function, without their names and defaults."""
    opening = declaration.parameters
    if opening is None:
        return []
    spans = []
    for start, stop in source.split_commas(opening + 1, source.partner[opening]):
        end = next((at for at in range(start, stop) if source.text(at) == "="), stop)
        named = end - start > 1 and source.is_word(end - 1)
        spans.append((start, end - named))
    return spans


def _drop_in_scope(
    source: Source, declarations: list[Declaration], scope: str, namespaces: dict[str, dict[str, _Kept]]
) -> None:
    seen = namespaces.setdefault(scope, {})
    for declaration in declarations:
        start, stop = declaration.start, declaration.stop
        if declaration.kind == "namespace":
            assert declaration.body is not None
            inner = source.original(start, declaration.body)
            _drop_in_scope(source, declaration.members, f"{scope}::{inner}", namespaces)
            continue
        if declaration.kind == "class":
            _drop_in_scope(source, declaration.members, "", {})
        erased = _has_spaces(source, declaration)
        for key in _keys(source, declaration, erased):
            known = seen.setdefault(key, _Kept(declaration, erased))
            if known.declaration is declaration:
                continue
            if erased or known.erased:
                _widen(source, known.declaration, declaration)
                source.remove(start, stop)
                known.erased |= erased
            break


def _keys(source: Source, declaration: Declaration, erased: bool) -> list[str]:
    """Texts of which equal ones are the same: the C++ text, and, of functions with an address space, that with all
    unsigned integers of a kind called alike.
    """
    text = source.edited(declaration.start, declaration.stop)
    if not erased or declaration.kind != "function":
        return [text]
    return [text, "widths:" + " ".join(_any_width(word) for word in text.split(" "))]


def _any_width(word: str) -> str:
    return "unsigned" + word.lstrip("uchartsonglize_") if word in _WIDTHS else word


def _widen(source: Source, kept: Declaration, dropped: Declaration) -> None:
    mine = [at for at in range(kept.start, kept.stop) if source.edited(at, at + 1)]
    theirs = [at for at in range(dropped.start, dropped.stop) if source.edited(at, at + 1)]
    for own, other in zip(mine, theirs, strict=True):
        names = source.edited(own, own + 1), source.edited(other, other + 1)
        if all(name in _WIDTHS for name in names) and _WIDTHS[names[0]] < _WIDTHS[names[1]]:
            source.edits[own] = names[1]

"""A Metal text -> all broken rules. Puts the passes together, and decides what is an error and what is a note."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ... import settings
from ...errors import Report
from ..preprocess import FILE_NAME, preprocess
from ..source import Source
from ..toolchain import NATIVE
from . import dialects, scopes
from .findings import Finding, MetalText
from .language import violations
from .names import name_rules
from .pointers import pointer_rules
from .rules import RULES
from .signatures import signature_rules
from .texts import text_rules

NO_LIBCLANG = (
    "strict mode runs without libclang: rules L5, L6, A2, A5, A6, A7, M1, and what of L3 and A3 needs types, "
    "are not checked; pip install libclang"
)
_TEXT_PASSES: tuple[Callable[[MetalText], Iterable[Finding]], ...] = (
    text_rules,
    name_rules,
    pointer_rules,
    signature_rules,
)


@dataclass(frozen=True)
class Verdict:
    """Broken rules as reports, whose `kind` is the rule's id and `line` that of the text, or of the header that the
    message names. `notes` are what a text of others may do, and what could not be checked (kind "libclang").
    """

    reports: tuple[Report, ...]
    notes: tuple[Report, ...]


def check_strict(source: str, own: bool = True) -> tuple[Report, ...]:
    """The broken rules of a Metal text, in the order of its lines; () if there are none.

    `own` is for text that is meant to compile everywhere: all rules are errors there. With own=False, and always in
    included headers, rules that shipping text is known to break are left out (`strict.examine` gives them as notes).
    Without the libclang package the rules that need types are not checked, and a warning says so, once.
    Raises ShaderCompileError for a text that has no tokens or declarations to look at.
    """
    verdict = examine(source, own)
    if not dialects.is_available():
        _warn_once()
    return verdict.reports


def examine(source: str, own: bool = True) -> Verdict:
    """The broken rules of a Metal text, and the notes on it. Raises as `check_strict` does."""
    oldest = MetalText(source, Source(_preprocessed(source, 310)))
    found = set(_text_findings(oldest))
    notes: list[Report] = []
    if dialects.is_available():
        newest = oldest
        if _depends_on_version(source):
            newest = MetalText(source, Source(_preprocessed(source, 410)))
        first = dialects.parse(oldest, "3.1")
        found |= set(scopes.scope_rules(oldest, first))
        found |= set(dialects.conversion_rules((first, dialects.parse(newest, "4.1"))))
    else:
        notes.append(Report("libclang", 0, NO_LIBCLANG))
    reports: list[Report] = []
    for finding in sorted(found):
        is_own = own and finding.file == FILE_NAME
        is_error = is_own or RULES[finding.rule].others == "error"
        if is_error:
            reports.append(_report(finding))
        elif finding.file == FILE_NAME:  # nobody can act on a note on an included header
            notes.append(_report(finding))
    return Verdict(tuple(reports), tuple(notes))


@functools.cache
def _warn_once() -> None:
    warnings.warn(NO_LIBCLANG, stacklevel=3)


def _preprocessed(source: str, version: int, defines: Sequence[str] = ()) -> str:
    return preprocess(source, settings.compiler(), NATIVE / "stubs", (), [f"__METAL_VERSION__={version}", *defines])


def _depends_on_version(source: str) -> bool:
    return "__METAL_VERSION__" in source or "c10/metal" in source


def _text_findings(text: MetalText) -> Iterator[Finding]:
    for violation in violations(text.source):
        yield Finding(violation.line, violation.rule, violation.message, violation.file)
    for rules in _TEXT_PASSES:
        yield from rules(text)


def _report(finding: Finding) -> Report:
    where = "" if finding.file == FILE_NAME else f" (in {finding.file})"
    return Report(finding.rule, finding.line, finding.message + where)

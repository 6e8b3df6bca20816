"""Strict mode: rules of Apple's Metal compilers, 3.1 to 4.1, that a C++ compiler on the CPU does not enforce.

`check_strict` applies all of them to a Metal text; `refuse_violations` only those that everybody's text obeys, at
every compilation. `rules` holds the table: what each rule refuses, where it comes from, and which are not enforced.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .language import Violation, refuse_violations, violations

if TYPE_CHECKING:
    from .check import Verdict, check_strict, examine
    from .rules import NOT_ENFORCED, RULES, Rule

__all__ = [
    "NOT_ENFORCED",
    "RULES",
    "Rule",
    "Verdict",
    "Violation",
    "check_strict",
    "examine",
    "refuse_violations",
    "violations",
]

_MODULE_OF = {
    "NOT_ENFORCED": "rules",
    "RULES": "rules",
    "Rule": "rules",
    "Verdict": "check",
    "check_strict": "check",
    "examine": "check",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value

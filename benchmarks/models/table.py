"""Outcomes -> a table in markdown, and what is not as it should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .entry import Entry
from .ways import Outcome

BUDGET = 2e-5
"""||ours - eager|| / ||eager|| in float32, of an output or of all gradients: rounding through two layers."""

_HEAD = """# Attentions of real architectures

Made by `python -m benchmarks models` with {versions}. Each model is built from its configuration, tiny, with random
weights, and run in eval and in training, with static and with symbolic lengths, with and without a cache where it has
one; models that are alike are run in fewer of these. {count} ways in all. A cell is fused / all attentions of one
forward, the same in all ways of the column; where ways differ, each is named. Outputs and gradients of each run are
compared with those of eager code; the last column is the worst distance, float32. The pass rewrites what Dynamo
captures; the operators' reference on the CPU computes.

`attention_mask`: the second sequence is shorter, on the left for decoders in eval, so that its first rows see no key.
By default such a mask is declined; the column "key_padding" is with `attention.key_padding=True`.

"""
_COLUMNS = (
    "model", "library", "implementation", "no mask", "attention_mask, by default", "attention_mask, key_padding",
    "declined", "worst error",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One model: what came of each way. failures: ways that raised, in words."""

    entry: Entry
    outcomes: list[Outcome]
    failures: list[str]

    def faults(self) -> list[str]:
        """Sentences, none if all is as the entry says."""
        found = [f"{o.way.implementation} {o.way}: {fault}" for o in self.outcomes for fault in self._faults(o)]
        return [*self.failures, *found]

    def _faults(self, outcome: Outcome) -> Iterator[str]:
        entry = self.entry
        reason, lost = entry.declined or ("", 0)
        allowed = {reason} - {""}
        if outcome.way.padded and not outcome.way.key_padding:
            allowed.add("MASK")
            wrong = outcome.sites != entry.sites or outcome.fused >= entry.sites
        else:
            wrong = (outcome.fused, outcome.sites) != (entry.sites - lost, entry.sites)
        if wrong or not {name for name, _ in outcome.declined} <= allowed:
            why = "; ".join(dict.fromkeys(f"{name}: {message}" for name, message in outcome.declined))
            yield f"{outcome.fused} of {outcome.sites} fused, expected {entry.sites - lost} of {entry.sites}. {why}"
        if outcome.graphs != 1:
            yield f"compiled {outcome.graphs} times"
        if not outcome.error <= BUDGET:
            yield f"error {outcome.error:.1e}, budget {BUDGET:g}"

    def lines(self) -> list[str]:
        return [self._line(implementation) for implementation in self.entry.implementations]

    def _line(self, implementation: str) -> str:
        own = [outcome for outcome in self.outcomes if outcome.way.implementation == implementation]
        plain = [outcome for outcome in own if not outcome.way.padded]
        padded = [outcome for outcome in own if outcome.way.key_padding]
        default = [outcome for outcome in own if outcome.way.padded and not outcome.way.key_padding]
        error = max((outcome.error for outcome in own), default=float("nan"))
        cells = (
            self.entry.name, self.entry.library, implementation, _counts(plain), _counts(default), _counts(padded),
            _reasons([*plain, *padded]), f"{error:.0e}",
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


def _counts(outcomes: list[Outcome]) -> str:
    """One count if all ways agree, else each with its ways."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        found.setdefault(f"{outcome.fused}/{outcome.sites}", []).append(str(outcome.way))
    if len(found) <= 1:
        return next(iter(found), "-")
    return ", ".join(f"{count} ({'; '.join(where)})" for count, where in found.items())


def _reasons(outcomes: list[Outcome]) -> str:
    """The first message under each reason."""
    found: dict[str, str] = {}
    for outcome in outcomes:
        for reason, message in outcome.declined:
            found.setdefault(reason, message)
    return "; ".join(f"{reason}: {message}" for reason, message in found.items()).replace("|", "\\|") or "-"


def text(rows: list[Row], versions: dict[str, str]) -> str:
    """The page."""
    count = sum(len(row.outcomes) for row in rows)
    head = _HEAD.format(count=count, versions=", ".join(f"{name} {number}" for name, number in versions.items()))
    table = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    fused = sum(outcome.fused for row in rows for outcome in row.outcomes if _asked(outcome))
    sites = sum(outcome.sites for row in rows for outcome in row.outcomes if _asked(outcome))
    foot = f'\nAll ways but those of the column "by default" together: {fused} of {sites} attentions fused.\n'
    return head + "\n".join([*table, *(line for row in rows for line in row.lines())]) + "\n" + foot


def _asked(outcome: Outcome) -> bool:
    return not outcome.way.padded or outcome.way.key_padding

"""Suites: yaml files that say what is measured. A suite's `axes` are combined, every value with every other."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
SIZES = ("full", "quick", "simulated", "tiny")
_KEYS = {"about", "workload", "baselines", "axes", *SIZES[1:]}


@dataclass(frozen=True)
class Suite:
    """`about` for people, the name of a workload, the baselines beside ours, and the cases in order."""

    name: str
    about: str
    workload: str
    baselines: tuple[str, ...]
    cases: tuple[dict[str, Any], ...]

    def with_baselines(self, wanted: Collection[str]) -> Suite:
        """Beside ours only those of the suite's baselines that are wanted."""
        return replace(self, baselines=tuple(name for name in self.baselines if name in wanted))

    def where(self, conditions: Collection[str]) -> Suite:
        """Only the cases with these values, each as name=value with the value as yaml has it. ValueError for none."""
        wanted = {name: yaml.safe_load(value) for name, _, value in (each.partition("=") for each in conditions)}
        cases = tuple(case for case in self.cases if all(case.get(name) == wanted[name] for name in wanted))
        if not cases:
            raise ValueError(f"no case of {self.name} has {' '.join(conditions)}")
        return replace(self, cases=cases)

    def without(self, made: Sequence[Mapping[str, Any]]) -> Suite:
        """The cases of which there is no record."""
        known = [record["case"] for record in made if record["suite"] == self.name]
        return replace(self, cases=tuple(case for case in self.cases if case not in known))


def names() -> list[str]:
    """All suites, by file name."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str, size: str = "full") -> Suite:
    """A suite at one of SIZES: "full" is its axes, another's section replaces some. ValueError for a bad file."""
    path = FOLDER / f"{name}.yaml"
    if not path.exists():
        raise ValueError(f"no suite {name!r}; there are {', '.join(names())}")
    text = yaml.safe_load(path.read_text())
    unknown = text.keys() - _KEYS
    if unknown:
        raise ValueError(f"{path.name}: unknown keys {sorted(unknown)}; known are {sorted(_KEYS)}")
    axes = text["axes"] | (text.get(size) or {}) if size != "full" else text["axes"]
    return Suite(name, text["about"].strip(), text["workload"], tuple(text.get("baselines", ())), tuple(_combine(axes)))


def _combine(axes: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """One dict for each combination; an axis whose values are mappings sets several names at once."""
    for chosen in itertools.product(*axes.values()):
        case: dict[str, Any] = {}
        for name, value in zip(axes, chosen, strict=True):
            case |= value if isinstance(value, dict) else {name: value}
        yield case

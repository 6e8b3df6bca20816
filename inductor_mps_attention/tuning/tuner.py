"""Which measurements a run makes, in order, and what they decide. What is known is not measured again, so that a run
that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from inductor_mps_attention.codegen import Role, Tiling, TunedPlan, hinted

from . import candidates
from .gauges import gauge_of
from .machine import Machine
from .measuring import Attention
from .results import CONTESTANTS, DIRECTIONS, OURS, TUNED_ROLES, Results
from .shape import Family, Shape


@dataclass(frozen=True)
class Work:
    """What to tune: the shapes, whether training is meant, and how many tilings of each kernel are tried."""

    shapes: tuple[Shape, ...]
    training: bool = True
    tilings: int = 6

    @property
    def families(self) -> tuple[Family, ...]:
        return tuple(dict.fromkeys(shape.family for shape in self.shapes))

    @property
    def roles(self) -> tuple[Role, ...]:
        return TUNED_ROLES if self.training else TUNED_ROLES[:1]

    def roles_of(self, shape: Shape) -> tuple[Role, ...]:
        """Of a few queries against many keys the forward is a decode, whose tiling follows from its sizes."""
        decodes = hinted(shape.problem, shape.sizes).split is not None
        return tuple(role for role in self.roles if not (decodes and role is Role.FORWARD))

    @property
    def directions(self) -> tuple[str, ...]:
        return DIRECTIONS if self.training else DIRECTIONS[:1]

    def tilings_of(self, family: Family, role: Role) -> tuple[Tiling, ...]:
        return candidates.tilings(family, role, self.tilings)


@dataclass(frozen=True)
class Measurement:
    """One: of a tiling of a role, or of a contestant in a direction."""

    shape: Shape
    role: Role | None = None
    tiling: Tiling | None = None
    direction: str = ""
    contestant: str = ""

    @property
    def label(self) -> str:
        what = f"{self.direction} {self.contestant}"
        if self.role is not None and self.tiling is not None:
            what = f"{self.role.value} {self.tiling.short}"
        return f"{self.shape.label}: {what}"


def measurements(work: Work) -> list[Measurement]:
    """All, in the order in which they are made: those of tilings decide first."""
    plans = [
        Measurement(shape, role=role, tiling=tiling)
        for shape in work.shapes
        for role in work.roles_of(shape)
        for tiling in work.tilings_of(shape.family, role)
    ]
    compared = [
        Measurement(shape, direction=direction, contestant=name)
        for shape in work.shapes
        for direction in work.directions
        for name in CONTESTANTS
    ]
    return plans + compared


def missing(work: Work, results: Results) -> list[Measurement]:
    """Those that the results do not have."""
    return [each for each in measurements(work) if not _is_known(each, results)]


def _is_known(each: Measurement, results: Results) -> bool:
    if each.role is not None and each.tiling is not None:
        return (each.shape, each.role, each.tiling) in results.plans
    return (each.shape, each.direction, each.contestant) in results.compared


def tune(work: Work, results: Results, machine: Machine) -> Iterator[tuple[Measurement, Results]]:
    """Makes what is missing; gives each measurement with all results so far, of which the last are complete."""
    gauge = gauge_of(machine)
    attention: Attention | None = None
    for decided in (False, True):
        results = _decide(work, results) if decided else results
        for each in missing(work, results):
            if (each.role is None) is not decided:
                continue
            if attention is None or attention.shape != each.shape:
                attention = Attention(each.shape, gauge)
            results = _with(results, each, attention)
            yield each, results


def _with(results: Results, each: Measurement, attention: Attention) -> Results:
    if each.role is not None and each.tiling is not None:
        measured = attention.plan(each.role, each.tiling)
        return results.with_plan(each.shape, each.role, each.tiling, measured)
    if each.contestant == OURS:
        measured = attention.ours(each.direction, _plans(results, each.shape.family))
    else:
        measured = attention.stock(each.direction, each.contestant)
    return results.with_comparison(each.shape, each.direction, each.contestant, measured)


def _plans(results: Results, family: Family) -> tuple[TunedPlan, ...]:
    chosen = results.chosen.items()
    return tuple(TunedPlan(role, **asdict(own), tiling=tiling) for (own, role), tiling in chosen if own == family)


def _decide(work: Work, results: Results) -> Results:
    """The fastest tiling of each role of each family, over all shapes that were ever measured with it."""
    for family in work.families:
        for role in work.roles:
            fastest = results.fastest(family, role, work.tilings_of(family, role))
            if fastest is not None:
                results = results.with_choice(family, role, fastest)
    return results


def unreachable(shapes: Sequence[Shape]) -> list[Shape]:
    """Those that no kernel computes."""
    return [shape for shape in shapes if not candidates.tilings(shape.family, Role.FORWARD, 1)]

"""Measurements, and what they decide: the fastest tiling of each kernel, and whether ours is faster than stock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from inductor_mps_attention.codegen import Role, Tiling, TunedPlan

from .shape import Family, Shape

TUNED_ROLES = (Role.FORWARD, Role.BACKWARD_DQ, Role.BACKWARD_DKV)
"""Roles whose tiling makes a difference."""
DIRECTIONS = ("forward", "training")
"""What is compared with stock attention: a forward alone, or a forward and backward."""
OURS, SDPA, MANUAL = "ours", "sdpa", "manual"
CONTESTANTS = (OURS, SDPA, MANUAL)
"""Our kernels, F.scaled_dot_product_attention, and softmax(q @ k.mT) @ v in eager."""


@dataclass(frozen=True)
class Results:
    """All that was measured on one machine, in its unit; less is better, None is wrong or impossible.

    plans: (shape, role, tiling) -> measured. chosen: the tilings that families got, once all shapes of a run were
    measured. compared: (shape, direction, contestant) -> measured, ours with the chosen tilings.
    """

    plans: Mapping[tuple[Shape, Role, Tiling], float | None] = field(default_factory=dict)
    chosen: Mapping[tuple[Family, Role], Tiling] = field(default_factory=dict)
    compared: Mapping[tuple[Shape, str, str], float | None] = field(default_factory=dict)

    def with_plan(self, shape: Shape, role: Role, tiling: Tiling, measured: float | None) -> Results:
        return replace(self, plans={**self.plans, (shape, role, tiling): measured})

    def with_comparison(self, shape: Shape, direction: str, contestant: str, measured: float | None) -> Results:
        return replace(self, compared={**self.compared, (shape, direction, contestant): measured})

    def with_choice(self, family: Family, role: Role, tiling: Tiling) -> Results:
        """With the family's tiling. Where it is another than before, comparisons of the family's ours are forgotten."""
        if self.chosen.get((family, role)) == tiling:
            return self
        compared = {
            (shape, direction, name): value
            for (shape, direction, name), value in self.compared.items()
            if name != OURS or shape.family != family
        }
        return replace(self, chosen={**self.chosen, (family, role): tiling}, compared=compared)

    def fastest(self, family: Family, role: Role, candidates: Iterable[Tiling]) -> Tiling | None:
        """The candidate with the least geometric mean over all shapes of the family that have it; the first of equals.

        None where no candidate was right on all of them.
        """
        shapes = [shape for shape, measured_role, _ in self.plans if (shape.family, measured_role) == (family, role)]
        means = {}
        for tiling in candidates:
            measured = [self.plans.get((shape, role, tiling)) for shape in dict.fromkeys(shapes)]
            right = [value for value in measured if value is not None]
            if right and len(right) == len(measured):
                means[tiling] = math.fsum(math.log(value) for value in right)
        return min(means, key=lambda tiling: means[tiling]) if means else None

    def tuned_plans(self) -> tuple[TunedPlan, ...]:
        """For the planner."""
        choices = self._choices()
        return tuple(TunedPlan(role=role, **asdict(family), tiling=tiling) for (family, role), tiling in choices)

    def _choices(self) -> list[tuple[tuple[Family, Role], Tiling]]:
        return sorted(self.chosen.items(), key=lambda item: (repr(item[0][0]), item[0][1].value))

    def slower_than_stock(self, shape: Shape, direction: str, stock: str) -> str | None:
        """One sentence where the nearest measurement says that `stock` is faster than ours; None where it does not.

        A shape that no measurement speaks for is not slower: without measurements everything is fused.
        """
        distances = {
            measured: distance
            for measured, way, name in self.compared
            if (way, name) == (direction, stock) and (distance := measured.distance(shape)) is not None
        }
        if not distances:
            return None
        nearest = min(distances, key=lambda measured: (distances[measured], repr(measured)))
        ours, theirs = (self.compared.get((nearest, direction, name)) for name in (OURS, stock))
        if theirs is None or (ours is not None and ours <= theirs):
            return None
        how = "ours was wrong or impossible" if ours is None else f"ours took {ours / theirs:.2f} times as long"
        return f"stock attention was faster in {direction} when `tune` measured {nearest.label}: {how}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, in an order that does not depend on the order of measuring."""
        plans = [
            {"shape": asdict(shape), "role": role.value, "tiling": asdict(tiling), "measured": value}
            for (shape, role, tiling), value in self.plans.items()
        ]
        chosen = [
            {"family": asdict(family), "role": role.value, "tiling": asdict(tiling)}
            for (family, role), tiling in self._choices()
        ]
        compared = [
            {"shape": asdict(shape), "direction": direction, "contestant": name, "measured": value}
            for (shape, direction, name), value in self.compared.items()
        ]
        return {"plans": sorted(plans, key=repr), "chosen": chosen, "compared": sorted(compared, key=repr)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Results:
        """The inverse. Raises ValueError, KeyError or TypeError for anything that `to_json` does not write."""
        plans = {
            (_made(Shape, each["shape"]), _role(each["role"]), _made(Tiling, each["tiling"])): _number(each["measured"])
            for each in found["plans"]
        }
        chosen = {
            (_made(Family, each["family"]), _role(each["role"])): _made(Tiling, each["tiling"])
            for each in found["chosen"]
        }
        compared = {}
        for each in found["compared"]:
            if each["direction"] not in DIRECTIONS or each["contestant"] not in CONTESTANTS:
                raise ValueError(f"a comparison of {each['contestant']!r} in {each['direction']!r}")
            key = (_made(Shape, each["shape"]), each["direction"], each["contestant"])
            compared[key] = _number(each["measured"])
        return cls(plans, chosen, compared)


def _made(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """A dataclass of plain values, each of the type that the class says."""
    made = kind(**values)
    for each in fields(kind):
        value, wanted = getattr(made, each.name), str(each.type)
        if type(value).__name__ not in {"int | None": ("int", "NoneType")}.get(wanted, (wanted,)):
            raise TypeError(f"{each.name} is {value!r}")
    return made


def _role(name: str) -> Role:
    role = Role(name)
    if role not in TUNED_ROLES:
        raise ValueError(f"no tiling of {name} is tuned")
    return role


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, float) or not 0 < value < math.inf:
        raise ValueError(f"measured {value!r}")
    return value

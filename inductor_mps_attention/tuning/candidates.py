"""Which tilings are worth measuring: the planner's own, ranked by its model of the chip's family."""

from __future__ import annotations

import functools
from dataclasses import asdict, replace

from inductor_mps_attention.codegen import (
    APPLE,
    DeviceLimits,
    KernelPlan,
    Problem,
    Rejected,
    Role,
    Tiling,
    TunedPlan,
    family_of,
    plan,
    ranking,
)

from .machine import chip
from .shape import Family


@functools.cache
def limits() -> DeviceLimits:
    """Those of this machine, without what was tuned."""
    return replace(APPLE, family=family_of(chip()))


@functools.cache
def tilings(family: Family, role: Role, count: int) -> tuple[Tiling, ...]:
    """The table's choice, first, and the best others by the model: `count` in all, none where no kernel reaches."""
    problem = _problem(family)
    table = plan(problem, role, limits())
    if isinstance(table, Rejected):
        return ()
    others = [made for made in ranking.candidates(problem, role, limits()) if _keeps_the_rules(made, problem)]
    ranked = sorted(others, key=lambda made: ranking.cycles(made, limits().family))
    return tuple(dict.fromkeys([table.tiling, *(made.tiling for made in ranked)]))[:count]


def is_candidate(choice: TunedPlan) -> bool:
    """Whether `tilings` could have offered it: then its kernel is right, whoever chose it."""
    problem = _problem(Family(choice.dtype, choice.qk_head_dim, choice.v_head_dim, choice.has_lower, choice.has_upper))
    table, made = (plan(problem, choice.role, limits(), tiling=tiling) for tiling in (None, choice.tiling))
    if isinstance(table, Rejected) or isinstance(made, Rejected):
        return False
    offered = choice.tiling in ranking.tilings(choice.role) and _keeps_the_rules(made, problem)
    return choice.tiling == table.tiling or offered


def _keeps_the_rules(made: KernelPlan, problem: Problem) -> bool:
    """The planner's, and one of our own: what a forward in float32 decides about its backward stays the table's."""
    if not ranking.admissible(made, limits().family, limits()):
        return False
    if made.role is not Role.FORWARD or made.dtype.size != 4:
        return True
    table = plan(problem, Role.FORWARD, limits())
    # The backward adds scores up as the forward does: in as many chains as simdgroups share its rows.
    return not isinstance(table, Rejected) and made.tiling.sharing == table.tiling.sharing


def _problem(family: Family) -> Problem:
    return Problem(**asdict(family), aligned=True)

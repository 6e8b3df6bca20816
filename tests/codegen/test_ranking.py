"""The plan table against the model that ranks plans: a row that is beaten, or that breaks the rules of its family."""

from __future__ import annotations

import pytest
from inductor_mps_attention.codegen import DeviceLimits, Family, KernelPlan, Problem, Role, ranking
from inductor_mps_attention.codegen.tiles import Tiling

from .plans import DTYPES, limits_of, made

ROLES = (Role.FORWARD, Role.BACKWARD_DQ, Role.BACKWARD_DKV)
HEAD_DIMS = (64, 80, 96, 128, 256)


def found(problem: Problem, role: Role, limits: DeviceLimits) -> list[KernelPlan]:
    """At least 30 plans that fit the device."""
    fitting = list(ranking.candidates(problem, role, limits))
    assert len(set(fitting)) >= 30, f"{len(fitting)} candidates"
    return fitting


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", [Family.M1, Family.M3])
def test_each_row_is_within_five_percent_of_the_best_of_its_rules(
    family: Family, dtype: str, role: Role, head_dim: int
):
    limits = limits_of(family)
    problem = Problem(dtype, head_dim, head_dim, has_upper=True, aligned=True)
    chosen = made(problem, role, limits)
    assert ranking.admissible(chosen, family, limits), chosen.entry
    fitting = [each for each in found(problem, role, limits) if ranking.admissible(each, family, limits)]
    best = min(fitting, key=lambda each: ranking.cycles(each, family))
    assert ranking.cycles(chosen, family) <= 1.05 * ranking.cycles(best, family), f"{best.entry} beats {chosen.entry}"


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_m5_without_its_matrix_units_has_the_plans_of_m3(dtype: str, role: Role, head_dim: int):
    problem = Problem(dtype, head_dim, head_dim, has_upper=True, aligned=True)
    assert made(problem, role, limits_of(Family.M5)) == made(problem, role, limits_of(Family.M3))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Tiling(4, 2, 16), Tiling(4, 1, 16)),  # 128 bytes read a product, not 256
        (Tiling(4, 1, 16), Tiling(4, 1, 64)),  # 36 KB would leave one threadgroup a core
        (Tiling(4, 1, 16), Tiling(4, 1, 16, direct=True)),  # MFA lost half of its rate without staging on M1
    ],
)
def test_the_ranking_of_float32_forward_on_m1_is_that_of_published_kernels(better: Tiling, worse: Tiling):
    problem = Problem("float32", 48, 48, aligned=True)
    fast, slow = (ranking.cycles(made(problem, Role.FORWARD, tiling=tiling), Family.M1) for tiling in (better, worse))
    assert fast < slow


def test_staging_costs_more_than_it_saves_from_m3_on():
    problem = Problem("float16", 64, 64, aligned=True)
    staged, direct = (made(problem, Role.FORWARD, tiling=Tiling(4, 1, 32, direct=direct)) for direct in (False, True))
    assert ranking.cycles(direct, Family.M3) < ranking.cycles(staged, Family.M3)


def test_what_spills_is_ranked_below_what_does_not():
    problem = Problem("float16", 256, 256, aligned=True)
    shared, alone = (made(problem, Role.BACKWARD_DKV, tiling=Tiling(8, 1, 8, sharing=n)) for n in (4, 1))
    assert alone.register_bytes > 542
    assert ranking.cycles(shared, Family.M1) < ranking.cycles(alone, Family.M1)

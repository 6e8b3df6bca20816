"""Plans for the tests of the text: every one that can differ, and the few whose text is kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from inductor_mps_attention.codegen import APPLE, DeviceLimits, Family, KernelPlan, Problem, Role, Split, plan
from inductor_mps_attention.codegen.tiles import Tiling

DTYPES = ("float32", "float16", "bfloat16")
HEAD_DIMS = ((1, 1), (8, 8), (20, 20), (64, 64), (80, 80), (128, 128), (256, 256), (64, 32), (33, 128), (192, 100))
BANDS = ((False, False), (False, True), (True, False), (True, True))


BACKWARD = (Role.BACKWARD_DQ, Role.BACKWARD_DKV)


def limits_of(family: Family) -> DeviceLimits:
    return replace(APPLE, family=family)


def made(problem: Problem, role: Role, limits: DeviceLimits = APPLE, **options: bool | Tiling) -> KernelPlan:
    """The plan of a problem that has one."""
    answer = plan(problem, role, limits, **options)
    assert isinstance(answer, KernelPlan), answer
    return answer


def every_plan() -> Iterator[KernelPlan]:
    """All roles over dtypes, head dims, bands, alignment, key masks, families of chips and what is wanted."""
    axes = itertools.product(DTYPES, HEAD_DIMS, BANDS, (False, True), (False, True))
    for dtype, (qk, v), (lower, upper), aligned, key_mask in axes:
        problem = Problem(dtype, qk, v, lower, upper, aligned, key_mask)
        for role in Role:
            yield made(problem, role)
        yield made(problem, Role.FORWARD, logsumexp=False)
    for dtype, head_dim, family in itertools.product(DTYPES, (64, 80, 128, 256), (Family.M3, Family.STAND_IN)):
        for role in Role:
            yield made(Problem(dtype, head_dim, head_dim, has_upper=True, aligned=True), role, limits_of(family))
    for dtype, (key_grad, value_grad) in itertools.product(DTYPES, ((True, False), (False, True))):
        problem = Problem(dtype, 128, 64, has_upper=True, aligned=True)
        yield made(problem, Role.BACKWARD_DKV, key_grad=key_grad, value_grad=value_grad)
    for dtype, (qk, v), split in itertools.product(
        DTYPES, ((32, 32), (64, 64), (72, 130)), (Split(128, 2), Split(512, 1))
    ):
        problem = Problem(dtype, qk, v, has_upper=True, aligned=True, split=split)
        yield from (made(problem, role) for role in (Role.DECODE, Role.DECODE_MERGE))
        yield made(problem, Role.DECODE_MERGE, logsumexp=False)
    yield from (made(FORMS_PROBLEM, role, tiling=tiling) for role in BACKWARD for tiling in FORMS.values())
    grouped = replace(FORMS_PROBLEM, group_heads=3)
    yield from (made(grouped, Role.BACKWARD_DKV, tiling=tiling) for tiling in FORMS.values())
    for dtype, (key_grad, value_grad) in itertools.product(DTYPES, ((True, True), (True, False), (False, True))):
        problem = Problem(dtype, 72, 128, has_upper=True, aligned=True, group_heads=2)
        for role in (Role.BACKWARD_DKV, Role.BACKWARD_SUM):
            yield made(problem, role, key_grad=key_grad, value_grad=value_grad)


FORMS_PROBLEM = Problem("float16", 40, 72, has_upper=True, aligned=True)
FORMS = {
    "twice": Tiling(4, 1, 16),
    "two fragments, two blocks": Tiling(4, 2, 16, blocks=2),
    "unrolled, prefetched": Tiling(4, 1, 16, unrolled=True, prefetch=True),
    "double buffered": Tiling(4, 1, 16, double_buffered=True),
    "a tile of more rows than lanes": Tiling(2, 1, 64),
    "once": Tiling(4, 2, 16, once=True),
    "once, prefetched": Tiling(4, 1, 16, once=True, prefetch=True),
    "once, double buffered": Tiling(4, 1, 16, once=True, double_buffered=True),
    "two share": Tiling(4, 1, 16, sharing=2),
    "two share, prefetched": Tiling(4, 2, 8, sharing=2, prefetch=True),
    "four share": Tiling(4, 3, 8, sharing=4),
    "four share, double buffered": Tiling(8, 1, 8, sharing=4, double_buffered=True),
    "direct": Tiling(2, 1, 32, direct=True),
    "direct, two fragments, two blocks": Tiling(4, 2, 16, blocks=2, direct=True),
}
"""Every form of the backward kernels, whatever the plan table chooses."""


def barriers(plan: KernelPlan) -> int:
    """Two a tile, one where tiles have two places; one more to exchange products."""
    if plan.role is Role.DECODE:
        return 2  # each time that half of the simdgroups hands its sums to the other half
    if not plan.multiplies or plan.role is Role.BACKWARD_DELTA or plan.tiling.direct:
        return 0
    return (1 if plan.tiling.double_buffered else 2) + (plan.tiling.sharing > 1)


def golden_plans() -> list[KernelPlan]:
    """A few of each role that together have every branch of the templates."""
    causal = {"has_upper": True}
    window = {"has_lower": True, "has_upper": True}
    m3, stand_in = limits_of(Family.M3), limits_of(Family.STAND_IN)
    aligned = Problem("float16", 64, 64, aligned=True, **causal)
    return [
        made(Problem("float32", 64, 64), Role.FORWARD),
        made(aligned, Role.FORWARD, logsumexp=False),
        made(Problem("bfloat16", 128, 128, aligned=True, **window), Role.FORWARD),
        made(Problem("float32", 128, 128, aligned=True, **causal), Role.FORWARD),
        made(aligned, Role.FORWARD, m3),
        made(aligned, Role.FORWARD, stand_in),
        made(Problem("float16", 64, 64), Role.BACKWARD_DELTA),
        made(Problem("bfloat16", 20, 33), Role.BACKWARD_DELTA),
        made(aligned, Role.BACKWARD_DQ),
        made(Problem("float32", 80, 80, aligned=True, **causal), Role.BACKWARD_DQ),
        made(Problem("bfloat16", 72, 32, key_mask=True, **window), Role.BACKWARD_DQ),
        made(Problem("float32", 128, 100, aligned=True, **causal), Role.BACKWARD_DQ),
        made(aligned, Role.BACKWARD_DQ, m3),
        made(aligned, Role.BACKWARD_DKV),
        made(Problem("float32", 32, 64, has_lower=True), Role.BACKWARD_DKV),
        made(Problem("float32", 128, 128, aligned=True, key_mask=True, **causal), Role.BACKWARD_DKV),
        made(Problem("bfloat16", 20, 40), Role.BACKWARD_DKV, value_grad=False),
        made(Problem("float16", 64, 64, **causal), Role.BACKWARD_DKV, m3, key_grad=False),
        made(aligned, Role.BACKWARD_DKV, stand_in),
        made(replace(aligned, group_heads=2), Role.BACKWARD_DKV),
        made(Problem("float32", 128, 100, group_heads=3, **causal), Role.BACKWARD_DKV, value_grad=False),
        made(replace(aligned, group_heads=2), Role.BACKWARD_SUM),
        made(Problem("float32", 128, 100, group_heads=3), Role.BACKWARD_SUM, key_grad=False),
        made(replace(aligned, v_head_dim=128, split=Split(256, 1)), Role.DECODE),
        made(Problem("bfloat16", 20, 64, key_mask=True, split=Split(128, 2), **window), Role.DECODE),
        made(Problem("float32", 128, 128, aligned=True, split=Split(1024, 1)), Role.DECODE),
        made(Problem("float16", 250, 256, aligned=True, split=Split(256, 1), **causal), Role.DECODE),
        made(Problem("float32", 128, 128, split=Split(1024, 1)), Role.DECODE_MERGE),
        made(Problem("bfloat16", 64, 40, split=Split(128, 2)), Role.DECODE_MERGE, logsumexp=False),
    ]

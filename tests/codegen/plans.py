"""Plans for the tests of the text: every one that can differ, and the few whose text is kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from inductor_mps_attention.codegen import KernelPlan, Problem, Role, plan

DTYPES = ("float32", "float16", "bfloat16")
HEAD_DIMS = ((8, 8), (32, 32), (64, 64), (80, 80), (96, 96), (128, 128), (64, 32), (40, 128))
BANDS = ((False, False), (False, True), (True, False), (True, True))


def made(problem: Problem, role: Role, *, logsumexp: bool = True) -> KernelPlan:
    """The plan of a problem that has one."""
    answer = plan(problem, role, logsumexp=logsumexp)
    assert isinstance(answer, KernelPlan), answer
    return answer


def every_plan() -> Iterator[KernelPlan]:
    """All roles over dtypes, head dims, bands, alignment and logsumexp."""
    for dtype, (qk, v), (lower, upper), aligned in itertools.product(DTYPES, HEAD_DIMS, BANDS, (False, True)):
        problem = Problem(dtype, qk, v, lower, upper, aligned)
        for role in Role:
            yield made(problem, role)
        yield made(problem, Role.FORWARD, logsumexp=False)


def golden_plans() -> list[KernelPlan]:
    """One or two of each role that together have every branch of the templates."""
    causal = {"has_upper": True}
    window = {"has_lower": True, "has_upper": True}
    return [
        made(Problem("float32", 64, 64), Role.FORWARD),
        made(Problem("float16", 64, 64, aligned=True, **causal), Role.FORWARD, logsumexp=False),
        made(Problem("bfloat16", 128, 128, aligned=True, **window), Role.FORWARD),
        made(Problem("float16", 64, 64), Role.BACKWARD_DELTA),
        made(Problem("float32", 80, 80, aligned=True, **causal), Role.BACKWARD_DQ),
        made(Problem("bfloat16", 64, 32, **window), Role.BACKWARD_DQ),
        made(Problem("float16", 64, 64, aligned=True, **causal), Role.BACKWARD_DKV),
        made(Problem("float32", 32, 64, has_lower=True), Role.BACKWARD_DKV),
    ]

"""Every barrier of the attention kernels is needed, and check mode shows it: without it, or with weaker flags, a race.

The delta and merge kernels have none: their simdgroups share no memory. Decode has one before and one after half of
the simdgroups take the sums of the others. The others have one barrier before a tile is overwritten and one before it
is read, each executed once a tile, and a third where simdgroups exchange products.
"""

from __future__ import annotations

import pytest
import torch
from inductor_mps_attention.codegen import Problem, Role, Split, render

from inductor_mps_attention.simulator import CheckError
from tests.codegen.launching import Band, decode, launch, run
from tests.codegen.plans import barriers, made
from tests.support import inputs

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
WEAKER = {
    "orders nothing": "threadgroup_barrier(mem_flags::mem_none);",
    "orders device memory": "threadgroup_barrier(mem_flags::mem_device);",
    "of a simdgroup": "simdgroup_barrier(mem_flags::mem_threadgroup);",
}
SPLIT = Split(128, 1)
SHAPES = {
    "float32": (torch.float32, 64, 64),
    "float16": (torch.float16, 128, 128),
    "bfloat16": (torch.bfloat16, 40, 64),
}


def plan_of(dtype: str, role: Role):
    _, qk, v = SHAPES[dtype]
    return made(Problem(dtype, qk, v, has_upper=True, split=SPLIT), role)


@pytest.fixture(scope="module", params=SHAPES)
def results(request: pytest.FixtureRequest):
    """Inputs and outputs of all kernels: each can be launched again alone."""
    dtype, qk, v = SHAPES[request.param]
    shape = inputs.Shape(1, 1, 1, 50, 70, qk, v_head_dim=v)
    tensors = inputs.make(shape, dtype, layout="contiguous", device="cpu", seed=0)
    whole, parts = (
        run(tensors, scale=0.2, band=Band(upper=20), group_heads=1),
        decode(tensors, scale=0.2, split=SPLIT, band=Band(upper=20)),
    )
    return request.param, whole | parts


def test_the_kernels_have_the_barriers_that_are_removed_here():
    for dtype in SHAPES:
        for role in Role:
            text = render(plan_of(dtype, role)).text
            assert text.count("barrier(") == text.count(BARRIER) == barriers(plan_of(dtype, role)), role


def check_without(results, role: Role, instead: str) -> None:
    """Each barrier in turn."""
    dtype, tensors = results
    plan = plan_of(dtype, role)
    pieces = render(plan).text.split(BARRIER)
    for place in range(barriers(plan)):
        text = BARRIER.join(pieces[: place + 1]) + instead + BARRIER.join(pieces[place + 1 :])
        with pytest.raises(CheckError) as caught:
            launch(plan, tensors, 0.2, Band(upper=20), text, "full")
        assert {report.kind for report in caught.value.reports} <= {"race", "uninitialised"}


@pytest.mark.parametrize("role", [Role.FORWARD, Role.BACKWARD_DQ, Role.BACKWARD_DKV, Role.DECODE])
def test_a_deleted_barrier_is_reported(results, role: Role):
    check_without(results, role, "")


@pytest.mark.parametrize("results", ["float32"], indirect=True)  # what a barrier orders is the same for all dtypes
@pytest.mark.parametrize("how", WEAKER)
@pytest.mark.parametrize("role", [Role.FORWARD, Role.BACKWARD_DQ, Role.BACKWARD_DKV, Role.DECODE])
def test_a_weaker_barrier_is_reported(results, role: Role, how: str):
    check_without(results, role, WEAKER[how])


@pytest.mark.parametrize("role", list(Role))
def test_with_all_barriers_nothing_is_reported(results, role: Role):
    dtype, tensors = results
    plan = plan_of(dtype, role)
    launch(plan, tensors, 0.2, Band(upper=20), render(plan).text, "full")

"""Which kernels are launched for what is wanted: launches and scratch memory that nobody needs."""

from __future__ import annotations

import pytest
from inductor_mps_attention.codegen import Problem, Rejected, Role, backward_steps

DELTA, DQ, DKV = Role.BACKWARD_DELTA, Role.BACKWARD_DQ, Role.BACKWARD_DKV


@pytest.mark.parametrize(
    ("wanted", "roles", "outputs"),
    [
        ((True, True, True), [DELTA, DQ, DKV], {"grad_q", "grad_k", "grad_v"}),
        ((True, False, False), [DELTA, DQ], {"grad_q"}),
        ((False, True, False), [DELTA, DKV], {"grad_k"}),
        ((False, False, True), [DKV], {"grad_v"}),
        ((False, True, True), [DELTA, DKV], {"grad_k", "grad_v"}),
        ((True, False, True), [DELTA, DQ, DKV], {"grad_q", "grad_v"}),
        ((False, False, False), [], set()),
    ],
)
def test_a_backward_makes_what_is_wanted_and_no_more(
    wanted: tuple[bool, bool, bool], roles: list[Role], outputs: set[str]
):
    steps = backward_steps(Problem("float16", 64, 64), (), wanted=wanted)
    assert not isinstance(steps, Rejected)
    assert [step.plan.role for step in steps] == roles
    written = {buffer.name for step in steps for buffer in step.plan.buffers if buffer.writable}
    assert written - {"delta"} == outputs
    assert [scratch.name for step in steps for scratch in step.scratch] == ["delta"] * (DELTA in roles)
    read = {buffer.name for step in steps for buffer in step.plan.buffers if not buffer.writable}
    assert ("delta" in read) == (DELTA in roles)

"""The planner: what it declines and why, and that nothing it makes exceeds the device."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from inductor_mps_attention.codegen import (
    APPLE,
    Family,
    KernelPlan,
    Problem,
    Rejected,
    Role,
    launch_grid,
    plan,
    supported,
)

from .launching import WHOLE
from .plans import DTYPES, every_plan, limits_of, made


@pytest.mark.parametrize(
    ("problem", "limit", "got"),
    [
        (Problem("float64", 64, 64), "DTYPE", "float64"),
        (Problem("int8", 64, 64), "DTYPE", "int8"),
        (Problem("float32", 0, 64), "HEAD_DIM", "0"),
        (Problem("float32", 64, 0), "HEAD_DIM", "0"),
        (Problem("float16", 257, 64), "HEAD_DIM", "257"),
        (Problem("float16", 64, 264), "HEAD_DIM", "264"),
    ],
)
def test_what_no_kernel_computes_is_declined_with_the_value_got(problem: Problem, limit: str, got: str):
    for role in Role:
        answer = plan(problem, role)
        assert isinstance(answer, Rejected)
        assert answer.limit == limit
        assert got in answer.message
    rejected = supported(problem)
    assert rejected is not None
    assert rejected.limit == limit


def test_a_device_with_too_little_threadgroup_memory_is_declined():  # omlx#3795: the launch fails instead
    small = dataclasses.replace(APPLE, threadgroup_bytes=8192)
    rejected = supported(Problem("float32", 128, 128), small)
    assert rejected is not None
    assert rejected.limit == "THREADGROUP_MEMORY"
    assert "8192" in rejected.message


def test_a_device_that_allows_more_than_the_table_has_is_declined():
    rejected = supported(Problem("float16", 264, 264), dataclasses.replace(APPLE, max_head_dim=512))
    assert rejected is not None
    assert rejected.limit == "HEAD_DIM"
    assert "264" in rejected.message


def test_forward_and_backward_are_supported_together():
    assert supported(Problem("bfloat16", 128, 8, has_upper=True)) is None


def test_every_plan_fits_the_device_and_its_own_assumptions():
    for each in every_plan():
        assert each.threadgroup_bytes <= APPLE.threadgroup_bytes
        assert each.threads <= APPLE.max_threads
        assert each.tiling.tile <= 64  # a lane has the statistics of at most two rows
        assert each.tiling.simdgroups % each.tiling.sharing == 0
        assert each.tile_fragments % each.blocks == 0
        assert each.tiling.tile % 8 == 0
        assert each.evidence
        assert len(each.buffers) + 1 + len(each.scalars) <= 31  # argument slots of a Metal kernel


@pytest.mark.parametrize("family", Family)
def test_every_family_has_every_head_dim(family: Family):  # what was accepted on one chip must launch on another
    for dtype in ("float16", "float32"):
        for head_dim in range(1, 257):
            assert supported(Problem(dtype, head_dim, head_dim, aligned=True), limits_of(family)) is None


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("family", [Family.M1, Family.M3])
def test_nothing_spills_on_an_apple_gpu(family: Family, wanted: tuple[bool, bool]):
    limits, (key_grad, value_grad) = limits_of(family), wanted
    for dtype, head_dim, aligned, key_mask in itertools.product(DTYPES, range(1, 257), (False, True), (False, True)):
        problem = Problem(dtype, head_dim, head_dim, aligned=aligned, key_mask=key_mask)
        for role in Role:
            plan = made(problem, role, limits, key_grad=key_grad, value_grad=value_grad)
            assert plan.register_bytes <= APPLE.register_bytes, plan.entry


def test_two_plans_never_share_a_kernel_name():  # a name is the key under which a compiled kernel is kept
    plans = set(every_plan())
    assert len({each.entry for each in plans}) == len(plans)


def test_bfloat16_is_multiplied_as_float_only_where_the_registers_allow_it():
    assert made(Problem("bfloat16", 64, 64), Role.FORWARD).fragment_dtype.name == "float32"
    assert made(Problem("bfloat16", 128, 128), Role.BACKWARD_DQ).fragment_dtype.name == "bfloat16"
    assert made(Problem("float16", 64, 64), Role.FORWARD).fragment_dtype.name == "float16"


@pytest.mark.parametrize("role", WHOLE)
def test_a_grid_is_whole_threadgroups_that_cover_every_row(role: Role):  # a short last group breaks barriers
    each = made(Problem("float32", 64, 64, has_upper=True), role)
    for q_len, kv_len in ((1, 33), (33, 1), (64, 64), (257, 100)):
        threads, group = launch_grid(each, 2, 8, 4, q_len, kv_len)
        assert all(total % size == 0 for total, size in zip(threads, group, strict=True))
        rows, heads = (kv_len, 4) if role is Role.BACKWARD_DKV else (q_len, 8)
        assert threads[0] // group[0] == heads  # the fastest axis
        assert threads[2] // group[2] == 2
        blocks = threads[1] // group[1]
        assert (blocks - 1) * each.block_rows < rows <= blocks * each.block_rows


def test_a_size_of_zero_has_an_empty_grid_only_when_nothing_is_to_be_written():
    forward = made(Problem("float32", 64, 64), Role.FORWARD)
    assert 0 in launch_grid(forward, 1, 2, 2, 0, 5)[0]
    assert 0 in launch_grid(forward, 0, 2, 2, 5, 5)[0]
    assert 0 not in launch_grid(forward, 1, 2, 2, 5, 0)[0]
    assert 0 not in launch_grid(made(Problem("float32", 64, 64), Role.BACKWARD_DKV), 1, 2, 2, 0, 5)[0]


def test_heavy_blocks_start_first():  # worth up to 1.5x under a causal band
    def reversed_blocks(role: Role, lower: bool, upper: bool) -> bool:
        return made(Problem("float16", 64, 64, lower, upper), role).reversed_blocks

    assert reversed_blocks(Role.FORWARD, False, True)
    assert reversed_blocks(Role.BACKWARD_DQ, False, True)
    assert not reversed_blocks(Role.BACKWARD_DKV, False, True)
    assert reversed_blocks(Role.BACKWARD_DKV, True, False)
    assert not any(reversed_blocks(role, False, False) for role in Role)


def test_a_plan_is_hashable_and_equal_to_its_twin():
    problem = Problem("float16", 64, 64)
    first, second = plan(problem, Role.FORWARD), plan(problem, Role.FORWARD)
    assert isinstance(first, KernelPlan)
    assert first == second
    assert hash(first) == hash(second)

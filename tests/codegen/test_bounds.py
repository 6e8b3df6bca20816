"""Bounds that hold on any GPU, counted by the engine: the plan that M1 and M2 get moves, keeps or multiplies too much.

Per product of 8x8x8: a port of 64 bytes a cycle feeds a pipe that takes one in about 5 cycles, and fragments of float32
are twice as long. What a thread keeps decides how many simdgroups are resident, and how much threadgroup memory too.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace

import pytest
from inductor_mps_attention.codegen import KernelPlan, Problem, Role, render

from .launching import Band, counters
from .plans import DTYPES, made

ROLES = (Role.FORWARD, Role.BACKWARD_DQ, Role.BACKWARD_DKV)
CAUSAL = Band(upper=0)


def narrow(plan: KernelPlan) -> KernelPlan:
    """The same tiles with a head dim of 8: of products, it only changes how many a tile takes, and the test's time."""
    problem = Problem(plan.dtype.name, 8, 8, has_upper=plan.has_upper, aligned=True)
    return made(problem, plan.role, tiling=replace(plan.tiling, sharing=1, prefetch=False, double_buffered=False))


def plan_of(dtype: str, head_dim: int, role: Role, *, causal: bool = False) -> KernelPlan:
    return made(Problem(dtype, head_dim, head_dim, has_upper=causal, aligned=True), role)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_m1_and_m2_read_and_wait_for(dtype: str, role: Role, head_dim: int):
    plan = plan_of(dtype, head_dim, role)
    length = math.lcm(plan.block_rows, plan.tiling.tile)
    ran = counters(plan, length, check="full")
    assert ran["threadgroup_bytes"] == plan.threadgroup_bytes
    assert ran["threadgroup_bytes_read"] / ran["products"] <= (140 if plan.dtype.size == 2 else 176)
    tiles = (length // plan.block_rows) * (length // plan.tiling.tile)
    assert ran["barriers"] / tiles <= (3 if plan.tiling.sharing > 1 else 2)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_m1_and_m2_keep(dtype: str, role: Role):
    for head_dim in range(1, 129):
        plan = plan_of(dtype, head_dim, role)
        assert plan.register_bytes <= 340, plan.entry
        assert plan.threadgroup_bytes <= 12 * 1024, plan.entry


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_no_product_but_those_that_are_needed_at_1024(dtype: str, role: Role, head_dim: int):
    """Rows of a block past the end, padding of head dims, products made again: at most a tenth together."""
    plan = narrow(plan_of(dtype, head_dim, role))
    needed = (1024 // 8) ** 2 * plan.block_products // plan.tiling.row_fragments
    assert counters(plan, 1024)["products"] <= 1.10 * needed


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_causal_band_saves_its_half_at_4096(dtype: str, role: Role, head_dim: int):
    plan = narrow(plan_of(dtype, head_dim, role, causal=True))
    full = (4096 // 8) ** 2 * plan.block_products // plan.tiling.row_fragments
    assert counters(plan, 4096, CAUSAL)["products"] <= 0.55 * full


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_forward_reads_from_memory_what_its_tiles_are(dtype: str, head_dim: int):
    """q once, keys and values once for each block of rows: a tile that is read twice, or rows of other tiles.

    The integers of a launch come on top, once a thread: on a GPU they lie in a cache of their own.
    """
    plan = plan_of(dtype, head_dim, Role.FORWARD)
    length = 2 * math.lcm(plan.block_rows, plan.tiling.tile)
    blocks, row = length // plan.block_rows, head_dim * plan.dtype.size
    implied = (1 + 2 * blocks) * length * row
    integers = (8 * len(plan.parameters) + 4) * plan.threads * blocks
    assert counters(plan, length, check="full")["device_bytes_read"] - integers <= 1.05 * implied


def test_no_scalar_product_is_left_to_a_loop():
    """Elements times elements outside of 8x8 products: each of them would take as long as 16 in a product."""
    for dtype, role in itertools.product(DTYPES, Role):
        text = render(plan_of(dtype, 64, role)).text
        assert not re.search(r"\bdot\(|\w\[[^\]]*\]\s*\*\s*(float\()?\w+\[", text), role

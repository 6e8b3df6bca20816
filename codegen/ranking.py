"""Plans compared: what a kernel does for each 8x8x8 product, and the cycles that this takes a core of an Apple GPU.

Counts are exact, the engine's counters confirm them; cycles are an estimate to rank candidates by, from published
figures of the hardware (philipturner/metal-benchmarks) and with the two rates that hold for MFA's kernels: 86 % of the
peak in float16 and 70 % in float32, whose fragments take twice the bytes. Nothing here was measured on Apple hardware.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from . import cost
from .chips import Family
from .limits import DeviceLimits
from .plan import KernelPlan, Rejected, plan
from .problem import Problem, Role
from .tiles import Tiling

FRAGMENT_ELEMENTS = 64


@dataclass(frozen=True)
class Counts:
    """Of a kernel, for each 8x8x8 product; barriers and shuffles are of one simdgroup."""

    read_bytes: float
    """Of threadgroup memory, or of device memory where rows are not staged."""
    staged_bytes: float
    """From device memory into tiles, over all simdgroups."""
    barriers: float
    shuffles: float
    elementwise: float
    """Scores, gradients of weights and exponentials: lane instructions of a whole simdgroup."""


def counts(made: KernelPlan) -> Counts:
    """Over a tile, which is much longer than what happens before and after all tiles."""
    tiling, blocks = made.tiling, made.tile_fragments
    products = made.block_products * blocks
    fragments = _fragment_reads(made) * FRAGMENT_ELEMENTS * made.dtype.size
    exchanged = _exchange_reads(made) * FRAGMENT_ELEMENTS * 4 * tiling.row_fragments
    staged = 0.0
    if not tiling.direct:
        sets = tiling.simdgroups // tiling.sharing
        staged = tiling.tile * (made.qk_head_dim + made.v_head_dim) * made.dtype.size / sets
    barriers = 0 if tiling.direct else (1 if tiling.double_buffered else 2) + (tiling.sharing > 1)
    scores = 5 * 2 * blocks * tiling.row_fragments * tiling.sharing
    if made.role is Role.FORWARD:  # a tile's new maxima scale the output
        scores += 2 * made.v_fragments * tiling.row_fragments
    return Counts(
        read_bytes=(fragments + exchanged) * blocks / products,
        staged_bytes=staged / products,
        barriers=barriers * tiling.sharing / products,
        shuffles=_shuffles(made) * blocks * tiling.sharing / products,
        elementwise=scores / products,
    )


def _fragment_reads(made: KernelPlan) -> int:
    """8x8 fragments that are read for 8 streamed rows, by the simdgroups of one set of owned rows."""
    qk, v = made.qk_fragments, made.v_fragments
    if made.role is Role.FORWARD:
        return qk + v
    scores = qk + (v if made.needs_weight_gradients else 0)
    if made.tiling.once and made.needs_weight_gradients:
        return scores
    if made.role is Role.BACKWARD_DQ:
        return scores + qk
    return scores + (qk if made.key_grad else 0) + (v if made.value_grad else 0)


def _exchange_reads(made: KernelPlan) -> int:
    """Products of others, in 8x8 fragments, that the simdgroups sharing rows read for 8 streamed and 8 owned rows."""
    sharing, parts = made.tiling.sharing, made.parts
    if sharing == 1:
        return 0
    if made.role is Role.FORWARD:
        return sharing
    if made.role is Role.BACKWARD_DQ or not (made.key_grad and made.value_grad):
        return sharing * (sharing - 1)
    # Scores are wanted by all, gradients of weights only by the second half.
    return parts * (parts - 1) + parts * (sharing - 1)


def _shuffles(made: KernelPlan) -> float:
    """Of one simdgroup for 8 streamed rows."""
    tiling = made.tiling
    turned = (2 if made.fragment_dtype.size == 2 else 4) * tiling.row_fragments if tiling.once else 0
    if made.role is Role.FORWARD:
        return 2 * tiling.row_fragments / made.tile_fragments
    if made.role is Role.BACKWARD_DQ:
        return turned
    return turned * (made.key_grad + made.value_grad) + (1 if tiling.once else 2) * (1 + made.key_grad)


# Cycles and bytes of one core. A product is 512 multiply-adds on 128 lanes, issued at 102 of them.
_PRODUCT_CYCLES = 512 / 102
_PORT_BYTES = 64.0
_CACHE_BYTES = 25.0
"""From the second-level cache: what MFA's kernels reach on M1 that read all operands from device memory."""
_SHUFFLE_CYCLES = 0.5
_BARRIER_CYCLES = {True: 8.0, False: 16.0}
"""Of a simdgroup, with the next tile prefetched or not: a guess, hidden by others the better the more there are."""
_BODY_PRODUCTS = 300
"""Unrolled bodies beyond it leave an instruction cache of 12 KB, at some 20 bytes a product and its read."""
_SPILL_BYTES = 542
"""Registers of a thread at the least occupancy; what is kept beyond it goes through memory for each block of rows."""


def cycles(made: KernelPlan, family: Family, *, simdgroups_a_core: float = 64.0) -> float:
    """Core cycles for each product, when so many simdgroups are launched for each core. Lower is better.

    The issue of products, reads of operands and staging run side by side and hinder each other: they add up as squares,
    which gives the two published rates.
    """
    chip = cost.CHIPS["M1 Max" if family is Family.M1 else "M4 Max"]
    per = counts(made)
    pooled = family is not Family.M1  # registers, threadgroup memory and cache are one pool from M3 on
    reads = per.read_bytes / (_CACHE_BYTES if made.tiling.direct and not pooled else _PORT_BYTES)
    staging = per.staged_bytes / _CACHE_BYTES + (per.staged_bytes / _PORT_BYTES if pooled else 0.0)
    issue = _PRODUCT_CYCLES + per.elementwise * 32 / cost.LANES + per.shuffles * _SHUFFLE_CYCLES
    total = float((issue**2 + reads**2 + staging**2) ** 0.5)
    total += per.barriers * _BARRIER_CYCLES[made.prefetch or made.tiling.direct]
    kept = made.register_bytes + _prefetched_bytes(made)
    total += _spilled_cycles(made, kept)
    body = made.block_products * (made.tile_fragments if made.tiling.unrolled else made.blocks)
    total *= 1.1 if body > _BODY_PRODUCTS * made.tiling.sharing else 1.0
    resident = cost.resident(chip, kept, made.threadgroup_bytes, made.tiling.simdgroups)
    chains = (
        made.blocks * made.tiling.row_fragments * (1 if made.role is Role.FORWARD or made.tiling.sharing > 1 else 2)
    )
    hidden = cost.parallelism(chip, simdgroups_a_core * chip.cores, resident * min(1.5, max(1.0, chains / 4)))
    return total / hidden


def _prefetched_bytes(made: KernelPlan) -> int:
    if not made.prefetch:
        return 0
    units = sum(made.units_a_thread(width) * made.vector_of(width) for width in (made.qk_head_dim, made.v_head_dim))
    return units * made.dtype.size


def _spilled_cycles(made: KernelPlan, kept: int) -> float:
    spilled = max(0, kept + 64 - _SPILL_BYTES) * 32 * 2  # written and read again by a simdgroup, for each block
    return spilled / _CACHE_BYTES / (made.block_products * made.blocks / made.tiling.sharing)


def counted_cycles(counters: Mapping[str, int]) -> float:
    """The same estimate for a launch that the simulator counted, as if one core had all of it, at full occupancy."""
    issue = counters["products"] * _PRODUCT_CYCLES + counters.get("shuffles", 0) * _SHUFFLE_CYCLES
    port = (counters.get("threadgroup_bytes_read", 0) + counters.get("threadgroup_bytes_written", 0)) / _PORT_BYTES
    cache = (counters["device_bytes_read"] + counters["device_bytes_written"]) / _CACHE_BYTES
    return float((issue**2 + port**2 + cache**2) ** 0.5) + counters.get("barriers", 0) * _BARRIER_CYCLES[False]


MOST_READ_BYTES = {2: 140.0, 4: 176.0}
"""Of threadgroup memory for each product, on M1 and M2 up to head dim 128: beyond, the port is busier than the pipe."""
MOST_THREADGROUP_BYTES = 12 * 1024
"""On M1 and M2 up to head dim 128: five threadgroups a core."""


def admissible(made: KernelPlan, family: Family, limits: DeviceLimits) -> bool:
    """Whether a plan keeps the rules that come before speed.

    Nothing may spill; M1 and M2 stage operands (MFA lost half of its rate there without) within what leaves enough
    simdgroups resident; and float32 scores are added up in the forward as in the backward, see `score_chains`.
    """
    if made.register_bytes > limits.register_bytes:
        return False
    if made.dtype.size == 4 and (
        made.tiling.direct if made.role is Role.FORWARD else made.tiling.sharing == 4 and made.score_chains == 1
    ):
        return False
    if family is not Family.M1:
        return True
    if made.tiling.direct:
        return False
    small = max(made.qk_head_dim, made.v_head_dim) <= 128
    return not small or (
        made.threadgroup_bytes <= MOST_THREADGROUP_BYTES and counts(made).read_bytes <= MOST_READ_BYTES[made.dtype.size]
    )


def candidates(problem: Problem, role: Role, limits: DeviceLimits) -> Iterator[KernelPlan]:
    """Every plan of the role that fits the device, over all ways of cutting it up."""
    for tiling in tilings(role):
        made = plan(problem, role, limits, tiling=tiling)
        if not isinstance(made, Rejected):
            yield made


@functools.cache
def tilings(role: Role) -> tuple[Tiling, ...]:
    """All ways of cutting up a role's work that its template has a form for; which of them fit, the planner says."""
    return tuple(_tilings(role))


def _tilings(role: Role) -> Iterator[Tiling]:
    for simdgroups, rows, tile in itertools.product((2, 4, 8), (1, 2, 3), (8, 16, 32, 64)):
        base = Tiling(simdgroups, rows, tile)
        for tiling in (*_forms(base, role), *(replace(base, sharing=n) for n in (2, 4) if n <= simdgroups)):
            if role is Role.FORWARD and tiling.sharing > 2:
                continue
            for staging in ({}, {"prefetch": True}, {"double_buffered": True}):
                if not (tiling.direct and staging):
                    yield replace(tiling, **staging)


def _forms(base: Tiling, role: Role) -> Iterator[Tiling]:
    yield base
    yield replace(base, direct=True)
    if role is Role.FORWARD:
        return
    yield replace(base, once=True)
    if base.tile > 8:
        yield replace(base, blocks=2)
        yield replace(base, direct=True, blocks=2)
        yield replace(base, once=True, blocks=2)

"""The plan table: which tiling a kernel gets, per family of chips, role, element size and head dim.

On Apple GPUs a thread keeps at most 340 bytes of fragments, accumulators and row statistics; on M1 and M2, up to head
dim 128, a threadgroup has at most 12 KB of memory, and reads at most 140 bytes of it for each 8x8x8 product in 16 bits
and 176 in float32. `ranking.py` counts and compares candidates, and its test holds each row to within 5 % of the best
that keeps these rules; a row's words say what stands against the simpler choice. No row was measured on Apple hardware.
Rows of the stand-in are the fastest of those in benchmarks/results/plans, over both kinds of band.
"""

from __future__ import annotations

from dataclasses import dataclass

from .chips import Family
from .problem import Role
from .tiles import Tiling


@dataclass(frozen=True)
class TableRow:
    """Applies up to `max_head_dim`, the larger of the two head dims; `element_size` in bytes."""

    family: Family
    role: Role
    element_size: int
    max_head_dim: int
    tiling: Tiling
    evidence: str


FORWARD, DELTA, DQ, DKV = Role.FORWARD, Role.BACKWARD_DELTA, Role.BACKWARD_DQ, Role.BACKWARD_DKV
SUM = Role.BACKWARD_SUM
_DELTA = "reads each element once; under 4 % of a backward, whatever the shape"
_SUM = "reads each part once"

_ROWS: dict[Family, tuple[tuple[Role, int, int, Tiling, str], ...]] = {
    Family.M1: (
        (FORWARD, 2, 80, Tiling(8, 1, 32), "8 rows a simdgroup, as MFA and MLX have"),
        (FORWARD, 2, 128, Tiling(8, 1, 16), "a tile of 32 would take 17 KB"),
        (FORWARD, 2, 256, Tiling(8, 1, 8, sharing=2, prefetch=True), "unshared it would keep 404"),
        (FORWARD, 4, 64, Tiling(4, 2, 16), "halves the reads that hold float at 70 %"),
        (FORWARD, 4, 96, Tiling(8, 2, 8, sharing=2, prefetch=True), "one simdgroup a row set would read 256"),
        (FORWARD, 4, 128, Tiling(4, 2, 8, sharing=2), "one simdgroup a row set would read 256"),
        (FORWARD, 4, 256, Tiling(8, 1, 8, sharing=2), "unshared it would keep 536"),
        (DELTA, 2, 256, Tiling(4, 1, 8), _DELTA),
        (DELTA, 4, 256, Tiling(4, 1, 8), _DELTA),
        (SUM, 2, 256, Tiling(4, 1, 8), _SUM),
        (SUM, 4, 256, Tiling(4, 1, 8), _SUM),
        (DQ, 2, 64, Tiling(4, 2, 32, blocks=2), "two fragments halve the reads, two blocks fill the pipe"),
        (DQ, 2, 80, Tiling(8, 1, 32, once=True), "kept keys save a third of the reads"),
        (DQ, 2, 96, Tiling(8, 1, 16, prefetch=True, once=True), "kept keys save a third of the reads"),
        (DQ, 2, 128, Tiling(8, 1, 16), "kept keys would take 64 bytes more"),
        (DQ, 2, 256, Tiling(8, 1, 8, sharing=2, prefetch=True), "unshared it would keep 536"),
        (DQ, 4, 64, Tiling(8, 1, 16, once=True), "without kept keys it would read 256"),
        (DQ, 4, 96, Tiling(8, 2, 8, sharing=2, prefetch=True), "kept keys would keep 360 from head dim 80"),
        (DQ, 4, 128, Tiling(4, 3, 8, sharing=4), "two simdgroups would keep 416, or read 267"),
        (DQ, 4, 256, Tiling(8, 1, 8, sharing=4), "two simdgroups would keep 400"),
        (DKV, 2, 64, Tiling(4, 1, 32, once=True), "kept queries and gradients halve the reads"),
        (DKV, 2, 80, Tiling(4, 3, 16, sharing=4, prefetch=True), "three fragments for the registers of less than one"),
        (DKV, 2, 128, Tiling(8, 1, 16, sharing=2, prefetch=True), "unshared it would keep 404"),
        (DKV, 2, 256, Tiling(8, 1, 8, sharing=4, prefetch=True), "two simdgroups would keep 400"),
        (DKV, 4, 64, Tiling(4, 2, 16, sharing=2), "unshared it would read 256"),
        (DKV, 4, 80, Tiling(8, 3, 8, sharing=4, prefetch=True), "two simdgroups would keep 344"),
        (DKV, 4, 96, Tiling(8, 2, 8, sharing=4, prefetch=True), "two simdgroups would keep 408"),
        (DKV, 4, 128, Tiling(4, 2, 8, sharing=4), "two simdgroups would keep 536"),
        (DKV, 4, 256, Tiling(8, 1, 8, sharing=4), "two simdgroups would keep 528"),
    ),
    Family.M3: (
        (FORWARD, 2, 80, Tiling(4, 1, 32, direct=True), "MFA is best without staging there"),
        (FORWARD, 2, 128, Tiling(4, 1, 16, direct=True), "MFA is best without staging there"),
        (FORWARD, 2, 256, Tiling(8, 1, 16, sharing=2, prefetch=True), "without staging it would keep 436"),
        (FORWARD, 4, 64, Tiling(8, 2, 16, prefetch=True), "staged: the backward meets the same scores"),
        (FORWARD, 4, 128, Tiling(8, 2, 16, sharing=2, prefetch=True), "staged: the backward meets the same scores"),
        (FORWARD, 4, 256, Tiling(8, 1, 8, sharing=2, prefetch=True), "staged: the backward meets the same scores"),
        (DQ, 2, 64, Tiling(4, 2, 32, direct=True), "no barrier, half of the reads"),
        (DQ, 2, 128, Tiling(4, 1, 32, direct=True), "no barrier"),
        (DQ, 2, 256, Tiling(8, 1, 16, sharing=2, prefetch=True), "unshared it would keep 536"),
        (DQ, 4, 96, Tiling(4, 1, 32, direct=True), "no barrier"),
        (DQ, 4, 128, Tiling(8, 3, 8, sharing=4, prefetch=True), "unshared it would keep 408"),
        (DQ, 4, 256, Tiling(8, 1, 8, sharing=4, prefetch=True), "two simdgroups would keep 400"),
        (DKV, 2, 96, Tiling(4, 1, 32, direct=True), "no barrier"),
        (DKV, 2, 128, Tiling(8, 1, 32, sharing=2, prefetch=True), "unshared it would keep 400"),
        (DKV, 2, 256, Tiling(8, 1, 16, sharing=4, prefetch=True), "two simdgroups would keep 400"),
        (DKV, 4, 64, Tiling(8, 2, 32, sharing=2, prefetch=True), "two row fragments halve the reads"),
        (DKV, 4, 80, Tiling(8, 3, 16, sharing=4, prefetch=True), "two simdgroups would keep 392"),
        (DKV, 4, 96, Tiling(8, 3, 8, sharing=4, prefetch=True), "two simdgroups would keep 408"),
        (DKV, 4, 128, Tiling(8, 2, 16, sharing=4, prefetch=True), "three row fragments would keep 440"),
        (DKV, 4, 256, Tiling(8, 1, 8, sharing=4, prefetch=True), "two simdgroups would keep 528"),
    ),
    # TFLOP/s without and with a causal band: B1 H8, S 4096 in 16 bits, 2048 in float32.
    Family.STAND_IN: (
        (FORWARD, 2, 64, Tiling(8, 2, 64, prefetch=True), "120 / 115"),
        (FORWARD, 2, 96, Tiling(8, 2, 32, prefetch=True), "115 / 114"),
        (FORWARD, 2, 128, Tiling(8, 2, 16, double_buffered=True), "117 / 110"),
        (FORWARD, 2, 256, Tiling(8, 2, 8, sharing=2, prefetch=True), "70 / 70"),
        (FORWARD, 4, 64, Tiling(4, 2, 32, prefetch=True), "31 / 21; 8 simdgroups 33 / 17"),
        (FORWARD, 4, 128, Tiling(8, 2, 16, sharing=2, prefetch=True), "23 / 22; unshared 27 / 13"),
        (DQ, 2, 64, Tiling(8, 2, 64, prefetch=True, blocks=4), "138 / 136"),
        (DQ, 2, 80, Tiling(8, 2, 32, prefetch=True, blocks=2), "134 / 131"),
        (DQ, 2, 96, Tiling(8, 2, 16, double_buffered=True, blocks=2), "131 / 124"),
        (DQ, 2, 128, Tiling(8, 1, 32, prefetch=True, blocks=4), "117 / 113"),
        (DQ, 2, 256, Tiling(8, 1, 16), "80 / 78"),
        (DQ, 4, 64, Tiling(8, 2, 16, sharing=2, double_buffered=True), "30 / 28; unshared 36 / 17"),
        (DQ, 4, 128, Tiling(8, 2, 16, sharing=2, prefetch=True), "31 / 29"),
        (DKV, 2, 64, Tiling(8, 2, 64, unrolled=True), "133 / 132"),
        (DKV, 2, 80, Tiling(8, 2, 32, unrolled=True), "83 / 82"),
        (DKV, 2, 96, Tiling(8, 1, 64, unrolled=True), "110 / 109"),
        (DKV, 2, 128, Tiling(8, 1, 32, unrolled=True), "105 / 95"),
        (DKV, 2, 256, Tiling(8, 1, 16, sharing=2, prefetch=True), "68 / 73"),
        (DKV, 4, 64, Tiling(8, 2, 32, sharing=2, prefetch=True), "31 / 30"),
        (DKV, 4, 128, Tiling(8, 2, 16, sharing=4, prefetch=True), "25 / 24"),
    ),
}

TABLE = tuple(TableRow(family, *row) for family, rows in _ROWS.items() for row in rows)

_FALLBACK = {Family.M1: (), Family.M3: (Family.M1,), Family.M5: (Family.M3, Family.M1), Family.STAND_IN: (Family.M1,)}


def choose(family: Family, role: Role, element_size: int, head_dim: int) -> TableRow | None:
    """The first row that reaches `head_dim`, of the family, else of those whose rows it falls back on; or None."""
    for owner in (family, *_FALLBACK[family]):
        for row in TABLE:
            if (row.family, row.role, row.element_size) == (owner, role, element_size) and head_dim <= row.max_head_dim:
                return row
    return None


def given(
    family: Family, role: Role, tiling: Tiling, element_size: int, head_dim: int, evidence: str = "given by the caller"
) -> TableRow:
    """A row that is in no table."""
    return TableRow(family, role, element_size, head_dim, tiling, evidence)

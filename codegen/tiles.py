"""The plan table: how a kernel is cut up, per role, element size and head dim. Each row cites its evidence.

"bytes kept" is what fragments, accumulators and row statistics take in one thread's registers; on M1 and M2
the aim is at most 340, with at most about 12 KB of threadgroup memory. These are counts, no measurements on
Apple hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

from .problem import Role


@dataclass(frozen=True)
class Tiling:
    """How one threadgroup is cut up: it owns `simdgroups * row_fragments * 8` rows."""

    simdgroups: int
    row_fragments: int
    """8-row fragments that one simdgroup owns; two halve the threadgroup memory reads of a product."""
    tile: int
    """Rows of the streamed side that are staged in threadgroup memory at a time."""


@dataclass(frozen=True)
class TableRow:
    """Applies up to `max_head_dim`, the larger of the two head dims."""

    role: Role
    element_size: int
    max_head_dim: int
    tiling: Tiling
    evidence: str


_DELTA = "one simdgroup a row; reads each element once, under 4 % of a backward whatever the shape"

TABLE = (
    TableRow(Role.FORWARD, 2, 64, Tiling(4, 1, 32), "152 bytes kept, 9 KB; MFA and MLX use 4 simdgroups of 8 rows"),
    TableRow(Role.FORWARD, 2, 128, Tiling(4, 1, 16), "224 bytes kept, 8.5 KB; a tile of 32 would take 13 to 17 KB"),
    TableRow(
        Role.FORWARD,
        4,
        64,
        Tiling(4, 2, 16),
        "336 bytes kept, 9 KB; halves the reads that hold float at 70 %",
    ),
    TableRow(Role.FORWARD, 4, 128, Tiling(4, 1, 8), "280 bytes kept, 8.4 KB; a tile of 16 would take 17 KB"),
    TableRow(Role.BACKWARD_DELTA, 2, 128, Tiling(4, 1, 8), _DELTA),
    TableRow(Role.BACKWARD_DELTA, 4, 128, Tiling(4, 1, 8), _DELTA),
    TableRow(Role.BACKWARD_DQ, 2, 64, Tiling(4, 1, 32), "156 bytes kept, 9 KB"),
    TableRow(Role.BACKWARD_DQ, 2, 128, Tiling(4, 1, 16), "284 bytes kept, 8.5 KB"),
    TableRow(Role.BACKWARD_DQ, 4, 64, Tiling(4, 1, 16), "224 bytes kept, 9 KB"),
    TableRow(Role.BACKWARD_DQ, 4, 128, Tiling(4, 1, 8), "416 bytes kept, 8.4 KB: past the aim, may spill"),
    TableRow(Role.BACKWARD_DKV, 2, 64, Tiling(4, 1, 32), "216 bytes kept, 9.5 KB"),
    TableRow(Role.BACKWARD_DKV, 2, 128, Tiling(4, 1, 16), "408 bytes kept, 8.6 KB: past the aim, may spill"),
    TableRow(Role.BACKWARD_DKV, 4, 64, Tiling(4, 1, 16), "288 bytes kept, 9.1 KB"),
    TableRow(Role.BACKWARD_DKV, 4, 128, Tiling(4, 1, 8), "544 bytes kept, 8.5 KB: past the aim, will spill"),
)


def choose(role: Role, element_size: int, head_dim: int) -> TableRow | None:
    """The first row that reaches `head_dim`, or None."""
    for row in TABLE:
        if row.role is role and row.element_size == element_size and head_dim <= row.max_head_dim:
            return row
    return None

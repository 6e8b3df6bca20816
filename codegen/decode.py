"""Few queries against many keys: whether the keys are split into parts, how large these are, how a part is cut up.

Lengths in, a `Split` or None out; a `Split` in, a tiling out. DECODE makes sums and row statistics of each part in
float32, DECODE_MERGE adds the parts up. A key head's keys and values are read once for all query heads that share it.
"""

from __future__ import annotations

from . import footprint
from .footprint import FRAGMENT, SIMD_WIDTH, Shape
from .limits import DeviceLimits
from .problem import DTYPES, Problem, Role, Split
from .tiles import Tiling

MAX_QUERIES = 8
"""More queries than this fill enough of FORWARD's 8-row fragments; beyond it parts would also cost memory, of
4 * kv_len / keys times the output's elements in bytes."""

LEAST_KEYS = 256
"""Below, FORWARD's one launch is cheaper than two."""

THREADGROUPS = 256
"""Aimed at: four simdgroups each, they keep the 40 cores of the largest Apple GPU (not counting two of them) busy with
some 24 simdgroups a core, what a core of M1 holds of a kernel of about 300 bytes a thread."""

PART_KEYS = (1024, 512, 256, 128)
"""A part of 8 rows and `n` keys writes, and its merge reads, 2 / n of the bytes of float32 keys and values."""

SIMDGROUPS = 4

_ROWS_AND_TILES = ((2, 32), (2, 16), (2, 8), (1, 32), (1, 16), (1, 8))
"""(row fragments, keys of a tile), the most reuse of a loaded key first, then the most loads in flight. Near head dim
256 only the sums fit: queries are then read again, from the cache, for each tile."""


def split_of(batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int) -> Split | None:
    """The parts for these sizes, or None where one kernel over all keys is better. Sizes may be hints.

    The largest parts that still give THREADGROUPS threadgroups. kv_len may be any number in the end: the number of
    parts follows it, in the grid. q_len multiplies the memory of the parts, so a hint of it must be an upper bound.
    """
    if not (0 < q_len <= MAX_QUERIES and kv_len >= LEAST_KEYS and batch * heads * kv_heads > 0):
        return None
    rows = heads // kv_heads * q_len
    row_fragments = 2 if rows > FRAGMENT else 1
    owners = batch * kv_heads * -(-rows // (row_fragments * FRAGMENT))
    fitting = (keys for keys in PART_KEYS if owners * -(-kv_len // keys) >= THREADGROUPS)
    return Split(next(fitting, PART_KEYS[-1]), row_fragments)


def tiling_of(problem: Problem, role: Role, limits: DeviceLimits) -> tuple[Tiling, str]:
    """The tiling of DECODE or DECODE_MERGE, with what speaks for it: the most rows and keys that the registers hold."""
    split = problem.split or Split(PART_KEYS[0], 1)
    if role is Role.DECODE_MERGE:
        return Tiling(SIMDGROUPS, 1, FRAGMENT, part=split.keys), "one simdgroup a row; reads each part once"
    dtype = DTYPES[problem.dtype]
    shape = Shape(dtype, problem.qk_head_dim, problem.v_head_dim)
    candidates = [
        Tiling(SIMDGROUPS, rows, tile, direct=True, reread=reread, part=split.keys)
        for reread in (False, True)
        for rows, tile in (_ROWS_AND_TILES if not reread else _ROWS_AND_TILES[-2:])
        if rows <= split.row_fragments
    ]
    kept = [footprint.register_bytes(role, each, dtype, shape) for each in candidates]
    for candidate, count in zip(candidates, kept, strict=True):
        if count <= limits.register_bytes:
            return candidate, f"{count} bytes kept: the most rows, then keys, that the registers hold"
    return candidates[-1], f"{kept[-1]} bytes kept: past the aim, may spill"


def grid(
    role: Role, tiling: Tiling, batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int
) -> tuple[int, int, int]:
    """Threads of a launch of DECODE or DECODE_MERGE. No part, no threads of DECODE; the merge then writes zeros."""
    threads = tiling.simdgroups * SIMD_WIDTH
    if role is Role.DECODE_MERGE:
        return -(-heads * q_len // tiling.simdgroups) * threads, 1, batch
    blocks = -(-(heads // kv_heads * q_len) // (tiling.row_fragments * FRAGMENT))
    return kv_heads * blocks * threads, -(-kv_len // tiling.part), batch

"""Few heads of keys, each read by many heads of queries: whether BACKWARD_DKV splits a group over threadgroups.

A threadgroup of it owns keys and goes through the queries of all heads that read them. With few key heads there are so
few threadgroups that cores wait, so a group's heads are split into parts: each writes its sums in float32, and
BACKWARD_SUM adds the parts up in their order.
"""

from __future__ import annotations

SIMDGROUPS = 2048
"""Aimed at: twice what 40 cores hold of a kernel of about 300 bytes a thread, since causal blocks differ in their work.
On the stand-in, 8 heads to one key head in half, S 1024 to 4096: a training step is 1.5 to 3.7 times
as fast as without parts."""

KEYS = 16
"""Taken for the keys of a simdgroup: one or two fragments, whatever the plan."""

LEAST_ROWS = 512
"""Query rows that a part goes through at least: below, a second launch costs more than waiting cores."""


def group_heads_of(batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int) -> int | None:
    """Query heads of a part for these sizes, or None where a group is not split. Sizes may be hints.

    The parts take `heads / heads of a part * kv_len` rows of float32 for each key head, at most, for each of the
    two gradients, four bytes for each element of a tensor of all query heads.
    """
    if min(batch, kv_heads, q_len, kv_len) <= 0:
        return None
    sharing = heads // kv_heads
    busy = batch * kv_heads * -(-kv_len // KEYS)
    parts = min(-(-SIMDGROUPS // busy), sharing, sharing * q_len // LEAST_ROWS)
    if parts < 2:
        return None
    return -(-sharing // parts)

"""The tilings that are timed: one that no longer fits, a row of the plan table that nobody timed, or one that lost."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from inductor_mps_attention.codegen import APPLE, Family
from inductor_mps_attention.codegen.plan_table import TABLE
from inductor_mps_attention.codegen.tiles import Tiling

from benchmarks import plans

RESULTS = sorted((plans.FILE.parent.parent / "results" / "plans").glob("*_nvidia.jsonl"))
LIMITS = replace(APPLE, family=Family.STAND_IN)


def test_a_tiling_has_the_name_that_it_is_read_from():
    for candidate in plans.candidates(LIMITS):
        assert Tiling.of(candidate.made.tiling.short) == candidate.made.tiling
    everything = Tiling(8, 2, 64, sharing=4, prefetch=True, double_buffered=True, direct=True, once=True, blocks=2)
    assert Tiling.of(everything.short) == everything
    for wrong in ("", "s8r2", "s8r2t64z", "r2s8t64"):
        with pytest.raises(ValueError, match="no tiling"):
            Tiling.of(wrong)


def test_every_row_of_the_stand_in_was_timed_beside_others():
    timed = {(c.made.role, c.made.dtype.size, c.made.qk_head_dim, c.made.tiling) for c in plans.candidates(LIMITS)}
    rows = [row for row in TABLE if row.family is Family.STAND_IN]
    assert rows
    for row in rows:
        assert (row.role, row.element_size, row.max_head_dim, row.tiling) in timed, row


def test_every_row_of_the_stand_in_is_within_five_percent_of_the_fastest():
    """In the newest results, of the tilings for that head dim, without and with a causal band together."""
    times: dict[tuple[str, int, int], dict[str, float]] = {}
    for line in RESULTS[-1].read_text(encoding="utf-8").splitlines()[1:]:
        record = json.loads(line)
        key = (record["role"], 4 if record["dtype"] == "float32" else 2, record["head_dim"])
        tilings = times.setdefault(key, {})
        tilings[record["tiling"]] = tilings.get(record["tiling"], 0.0) + record["seconds"]
    for row in TABLE:
        if row.family is Family.STAND_IN:
            timed = times[row.role.value, row.element_size, row.max_head_dim]
            assert timed[row.tiling.short] <= 1.05 * min(timed.values()), row

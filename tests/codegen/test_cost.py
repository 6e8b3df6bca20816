"""The model of Apple chips: what it must say whatever its constants are."""

from __future__ import annotations

import pytest
from inductor_mps_attention.codegen import cost

WORK = cost.Work("forward", 2, 1, 16, 16, 4096, 4096, 64)
M1, M3_MAX, M5_MAX = (cost.CHIPS[name] for name in ("M1", "M3 Max", "M5 Max"))


def test_every_generation_and_size_is_there():
    for generation in range(1, 6):
        assert {"", " Pro", " Max"} <= {name[2:] for name in cost.CHIPS if name.startswith(f"M{generation}")}
    assert all(f"M{generation} Ultra" in cost.CHIPS for generation in (1, 2, 3))


def test_arithmetic_takes_its_instructions_at_the_full_rate():
    # 16 heads x 4096^2 scores x (2 * 64 + 5) instructions over 8 cores x 128 lanes x 1.278 GHz
    seconds = 16 * 4096**2 * 133 / (8 * 128 * 1.278e9)
    found = cost.fused(WORK, M1, efficiency=1.0)
    assert found.bound == "compute"
    assert found.seconds == pytest.approx(seconds, rel=1e-3)
    assert cost.fused(WORK, M1, efficiency=0.5).seconds == pytest.approx(2 * seconds, rel=1e-3)


def test_few_queries_are_bound_by_bandwidth_and_tiny_problems_by_the_launch():
    decode = cost.Work("forward", 2, 64, 32, 32, 1, 8192, 128)
    assert cost.fused(decode, M1, 0.8).bound == "bandwidth"
    assert cost.fused(cost.Work("forward", 2, 1, 1, 1, 32, 32, 64), M1, 0.8).bound == "launch"


def test_registers_and_threadgroup_memory_bound_the_occupancy():
    lean, fat = cost.resident(M1, 150, 9216, 4), cost.resident(M1, 640, 9216, 4)
    assert (lean, fat) == (24, 9)
    assert cost.resident(M1, 150, 32768, 4) == 4
    slower = cost.fused(WORK, M1, 0.8, fat)
    assert slower.bound == "occupancy"
    assert slower.seconds > 1.5 * cost.fused(WORK, M1, 0.8, lean).seconds


def test_the_causal_share_counts_whole_tiles():
    assert cost.causal_share(64, 64, 32, 32) == 3 / 4
    assert cost.causal_share(64, 64, 64, 32) == 1.0
    assert cost.causal_share(1, 64, 32, 32) == 1.0  # the last query sees all keys
    assert 0.5 < cost.causal_share(4096, 4096, 32, 32) < 0.51


def test_unfused_attention_pays_for_its_scores():
    full, causal = WORK, cost.Work("forward", 2, 1, 16, 16, 4096, 4096, 64, share=0.5)
    ours = cost.fused(full, M3_MAX, 0.85).seconds
    assert cost.unfused(full, M3_MAX) > 1.2 * ours
    assert cost.mps_graph(causal, M3_MAX) > 2 * cost.fused(causal, M3_MAX, 0.85).seconds * 2
    assert cost.unfused(causal, M3_MAX) > cost.unfused(full, M3_MAX)  # a mask, and nothing skipped


def test_backwards_take_their_products():
    roles = ("forward", "backward_dq", "backward_dkv")
    times = [cost.fused(cost.Work(role, 2, 1, 16, 16, 4096, 4096, 64), M5_MAX, 1.0).seconds for role in roles]
    assert [round(time / times[0], 2) for time in times] == [1.0, round(197 / 133, 2), round(261 / 133, 2)]

"""The arithmetic that a figure rests on: operations, spreads, comparisons, and when a ratio is refused."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks import quality, tables
from benchmarks.baseline import VARIANTS, refusal
from benchmarks.measure import Measurement, wall_clock
from benchmarks.problem import Problem
from benchmarks.quality import Quality


def problem(**values) -> Problem:
    return Problem.of({"dtype": "float16", "batch": 1, "heads": 2, "head_dim": 64, "length": 128} | values)


def test_operations_are_those_of_the_band():
    assert problem().flops(2) == 4 * 2 * 128 * 128 * 64
    assert problem(causal=True).flops(2) == 4 * 2 * (128 * 129 // 2) * 64
    assert problem(window=1).flops(2) == 4 * 2 * 128 * 64
    assert problem(window=200) == problem(causal=True, window=200)
    assert problem(window=200).flops(1) == problem(causal=True).flops(1)


def test_causal_means_that_the_last_query_sees_all_keys():
    cross = problem(length=None, q_len=4, kv_len=10, causal=True)
    assert (cross.lower, cross.upper) == (None, 6)
    assert cross.kept_share == (7 + 8 + 9 + 10) / 40
    assert problem(window=16).lower == -15


def test_labels_tell_problems_apart():
    labels = [
        problem().label(),
        problem(kv_heads=1).label(),
        problem(causal=True).label(),
        problem(window=16).label(),
        problem(length=None, q_len=1, kv_len=128).label(),
        problem(dtype="bfloat16").label(),
    ]
    assert len(set(labels)) == len(labels)
    assert labels[1] == "f16 B1 H2/1 S128 D64 full"


def test_a_median_and_a_spread():
    measured = Measurement((2.0, 1.0, 4.0), "m")
    assert (measured.median, measured.spread) == (2.0, 1.5)
    assert measured.joined(Measurement((0.5,), "m")).to_json()["samples"] == 4


def test_the_clock_runs_until_the_device_is_done():
    log = []
    measured = wall_clock(lambda: log.append("call"), lambda: log.append("wait"), 0.0)
    assert len(measured.seconds) == 3
    assert log[-1] == "wait"
    assert log.count("wait") == 5


GOOD = Quality(product_rate=80e12, product_share_of_ceiling=0.4, softmax_rate=3.5e12, softmax_share_of_copy=0.8)


def test_a_ratio_over_a_weak_baseline_is_refused():  # an unfused pipeline with a slow softmax made 2.7x of 1.8x
    assert GOOD.refusal(fused_rate=100e12) is None
    assert "products run at 50% of ours" in str(GOOD.refusal(fused_rate=160e12))
    slow = Quality(80e12, 0.4, 1.5e12, softmax_share_of_copy=0.36)
    assert "softmax moves bytes at 36% of a copy's rate" in str(slow.refusal(fused_rate=100e12))


def test_the_baseline_counts_whole_tiles_of_the_triangle():
    assert quality.visited_share(problem()) == 1.0
    assert quality.visited_share(problem(causal=True)) == 3 / 4  # 2 x 2 tiles of 64, one skipped
    assert quality.executed_flops(problem(causal=True)) == 2 * 2 * 128 * 128 * 64 * 3 / 4


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"length": 100}, "multiples of 64"),
        ({"window": 5}, "no band but causal"),
        ({"head_dim": 80}, "multiples of 64"),
    ],
    ids=["length", "window", "head_dim"],
)
def test_what_the_baseline_cannot_do_is_said(values: dict, reason: str):
    assert reason in str(refusal(problem(**values), backward=False))
    assert refusal(problem(), backward=True) is None


def test_a_comparison_tells_a_change_from_noise():
    def record(seconds: float) -> dict:
        result = {"median_s": seconds, "spread": 0.02}
        engine = {"name": "nvidia", "words": "w", "times_are_meaningful": True, "facts": {}}
        shared = {
            "suite": "forward",
            "case": {"length": 1},
            "label": "x",
            "commit": "c",
            "date": "2026-01-01",
            "engine": engine,
        }
        return shared | {"results": {"fused": result}}

    def verdict(before: float, after: float) -> str:
        console = Console(width=200, record=True, file=io.StringIO())
        console.print(tables.of_comparison([record(before)], [record(after)]))
        return console.export_text()

    assert "2.00x │ faster" in verdict(2.0, 1.0)
    assert "0.50x │ slower" in verdict(1.0, 2.0)
    assert "within the spread" in verdict(1.0, 1.03)


def test_tiles_of_the_baseline_divide_what_it_takes():
    assert all(64 % variant.columns == 0 and variant.rows % 32 == 0 for variant in VARIANTS)
    assert any(variant.rows == 64 for variant in VARIANTS)

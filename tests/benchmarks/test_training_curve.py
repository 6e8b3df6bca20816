"""Compiled training goes where eager goes: `python -m benchmarks.training_curve` in short, and what it refuses."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import training_curve
from inductor_mps_attention.demo.progress import Silent
from inductor_mps_attention.demo.training import TrainingSettings

SMALL = TrainingSettings(layers=2, heads=2, width=32, length=48, batch=4, steps=12, generated=0)


@pytest.mark.parametrize(("dtype", "spelling"), [("float32", "manual"), ("bfloat16", "sdpa")])
def test_losses_follow_those_of_eager(dtype: str, spelling: str) -> None:
    curves = training_curve.compare(spelling, dtype, SMALL, Silent())
    assert curves.failures() == []
    assert curves.eager[-1] < 0.95 * curves.eager[0], "nothing is learned, so nothing is compared"
    later = dataclasses.replace(curves, compiled=curves.compiled[1:] + curves.compiled[-1:])
    assert "of the first 50 losses differs" in later.failures()[0]
    unfused = dataclasses.replace(curves, launches={})
    assert "launches {}" in unfused.failures()[0]


def test_a_loss_that_is_no_number_fails() -> None:
    roles = dict.fromkeys("abcd", 3)
    curves = training_curve.Curves("sdpa", "float32", 1, [3.0, 2.0, 1.0], [3.0, 2.0, float("nan")], roles)
    early, last = curves.failures()[:2]
    assert "of the first 50 losses differs by nan" in early
    assert "the last loss differs by nan" in last

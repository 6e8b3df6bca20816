"""The model gives published rows back within what is claimed of it, those kept out of the fit as well."""

from __future__ import annotations

import pytest
from inductor_mps_attention.codegen import Role, cost

from benchmarks import __main__ as command_line
from benchmarks.prediction import published
from benchmarks.prediction.published import Accuracy
from benchmarks.prediction.tables import expected, kernel_prediction
from benchmarks.problem import Problem

ROWS = published.rows()
FIT = published.fit(ROWS)
ERRORS = published.errors(ROWS, FIT)


def accuracy(errors: list[float]) -> Accuracy:
    found = Accuracy.of(errors)
    assert found is not None
    return found


@pytest.mark.parametrize("role", ["forward", "backward_dq", "backward_dkv"])
@pytest.mark.parametrize("held_out", [False, True], ids=["fitted", "kept out"])
def test_the_median_error_of_each_role_is_within_ten_percent(role: str, held_out: bool):
    assert accuracy(published.fused_errors(ERRORS, held_out=held_out, role=role)).median < 0.10


def test_the_median_error_of_unfused_attention_and_of_ratios_is_within_ten_percent():
    assert accuracy([error for row, error in ERRORS.items() if not row.is_fused]).median < 0.10
    assert accuracy(published.ratio_errors(ROWS, FIT)).median < 0.10


def test_a_chip_is_predicted_with_the_plans_of_its_family():
    problem = Problem.of({"dtype": "float16", "batch": 1, "heads": 16, "head_dim": 64, "length": 4096, "causal": True})
    work = {name: kernel_prediction(problem, Role.FORWARD, cost.CHIPS[name])[0] for name in ("M1 Max", "M4 Max")}
    assert work["M1 Max"] != work["M4 Max"]  # 64 rows a threadgroup against 32: other tiles are cut


def test_a_tenth_of_the_fitted_kind_is_kept_out():
    fused = [row for row in ROWS if row.is_fused]
    held = [row for row in fused if row.held_out]
    assert len(held) >= len(fused) / 10
    assert all(row in ERRORS for row in held)  # none of them is without a fit
    assert {row.chip for row in held} >= {"M1 Max", "M4", "M3 Ultra", "M5 Pro"}


def test_rows_kept_out_do_not_enter_the_fit():
    only = [row for row in ROWS if not row.held_out]
    assert published.fit(only) == FIT


def test_an_efficiency_is_a_share_of_the_peak():
    assert all(0.3 < efficiency < 1.0 for efficiency in FIT.values())


def test_all_rows_have_a_source_and_a_known_chip():
    assert len(ROWS) > 150
    assert all(row.source.startswith("https://") and row.chip in cost.CHIPS for row in ROWS)
    assert all(row.work.kv_len >= 1024 for row in ROWS)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_our_plans_get_a_time_on_every_chip(direction: str):
    problem = Problem.of({"dtype": "float16", "batch": 1, "heads": 16, "head_dim": 64, "length": 4096, "causal": True})
    found = {name: expected(problem, direction, chip) for name, chip in cost.CHIPS.items()}
    assert found["M1 Max"].seconds < found["M1 Pro"].seconds < found["M1"].seconds
    assert all(prediction.over_mps_graph > 1 for prediction in found.values())


def test_the_command_prints_both_tables(capsys):
    assert command_line.main(["predict", "--check"]) == 0
    assert command_line.main(["predict", "--chip", "M3 Max", "M1", "--causal"]) == 0
    assert command_line.main(["predict", "--chip", "M9"]) == 1

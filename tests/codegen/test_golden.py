"""Kept texts: a change of any kernel is seen in review. UPDATE_GOLDEN=1 rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from inductor_mps_attention.codegen import KernelPlan, render

from inductor_mps_attention.simulator import compile_shader

from .plans import golden_plans

FOLDER = Path(__file__).parent.parent / "golden"
PLANS = golden_plans()


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.entry)
def test_the_text_is_the_kept_one(plan: KernelPlan):
    kept = FOLDER / f"{plan.entry}.metal"
    text = render(plan).text
    if os.environ.get("UPDATE_GOLDEN") == "1":
        kept.write_text(text, encoding="ascii")
    assert kept.exists(), f"no {kept.name}: run `UPDATE_GOLDEN=1 pytest tests/codegen/test_golden.py`"
    assert text == kept.read_text(encoding="ascii")


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.entry)
def test_the_engine_takes_the_kept_text(plan: KernelPlan):  # pytorch#158199: a generated shader did not compile
    library = compile_shader((FOLDER / f"{plan.entry}.metal").read_text(encoding="ascii"))
    assert list(library) == [plan.entry]
    assert library[plan.entry].max_threads_per_threadgroup == plan.threads


def test_no_kept_text_is_left_of_a_plan_that_is_gone():
    assert {path.stem for path in FOLDER.glob("*.metal")} == {plan.entry for plan in PLANS}

"""Every rule of strict mode is silent on every kind of text that is rendered."""

from __future__ import annotations

import itertools
import re

import pytest
from inductor_mps_attention.codegen import Problem, Role, render

from inductor_mps_attention.simulator import check_strict

from .plans import BANDS, DTYPES, golden_plans, made

HEAD_DIMS = ((64, 64), (40, 128))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("role", Role)
def test_no_rule_is_broken(role: Role, dtype: str):
    for number, ((qk, v), (lower, upper)) in enumerate(itertools.product(HEAD_DIMS, BANDS)):
        plan = made(Problem(dtype, qk, v, lower, upper, aligned=number % 2 == 0), role)
        assert [str(report) for report in check_strict(render(plan).text)] == [], plan.entry


# Edits to the kept texts that Apple's compilers refuse, so that silence above means something.
FAULTS = {
    "A2": (r"device const (half|float|bfloat)\* k \[\[", r"constant \1* k [["),
    "A1": (r"threadgroup const element\* tile", "const element* tile"),
    "A6": (r"inline void load_fragment\([^{]*\{", r"\g<0> threadgroup float scratch[4];"),
    "K5": (r"\[\[max_total_threads_per_threadgroup\(\d+\)\]\]\n", ""),
    "L6": (r"constant constexpr int TILE ", "constexpr int TILE "),
    "M1": (r"threadgroup (half|float) (query_tile|own_tile|key_tile|tile)\[\d+\]", r"threadgroup \1 \2[20000]"),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_put_into_a_rendered_text_is_reported(rule: str):
    pattern, replacement = FAULTS[rule]
    texts = [render(plan).text for plan in golden_plans()]
    text = next(text for text in texts if re.search(pattern, text))
    assert rule in {report.kind for report in check_strict(re.sub(pattern, replacement, text))}

"""Every case of the corpus: what must be fused is, what must not is not, and either way the numbers are eager's.

`MPS_ATTENTION_WHOLE_CORPUS=1` runs all cases at all levels.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from tests.corpus import Case, load
from tests.matching.harness import Result, fuse

CASES = load()
LEVELS: dict[str, dict[str, Any]] = {
    "static training": {},
    "static inference": {"grad": False},
    "dynamic training": {"dynamic": True},
    "dynamic inference": {"grad": False, "dynamic": True},
    "aten training": {"aten": True},
    "aten inference": {"grad": False, "aten": True},
}
# Training reads all that inference reads, and more: of inference a third of the cases is enough, or all on demand.
WHOLE = os.environ.get("MPS_ATTENTION_WHOLE_CORPUS") == "1"
RUNS = [
    pytest.param(case, level, id=f"{case.name}-{level}")
    for place, case in enumerate(CASES)
    for level in LEVELS
    if WHOLE or level.endswith("training") or place % 3 == 0
]


def test_the_corpus_is_large_enough() -> None:
    assert len(CASES) >= 300
    assert sum(not case.should_match for case in CASES) >= 170


@pytest.mark.parametrize(("case", "level"), RUNS)
def test_case(case: Case, level: str) -> None:
    options = LEVELS[level]
    if case.dynamo_only and "aten" in options:
        return
    function, inputs = case.build("cpu", torch.float32)
    if isinstance(function, torch.nn.Module):
        function.train(case.train)
    result = fuse(function, *inputs, **options)
    harmless = case.grad_only and not result.grad
    if not harmless:
        result.fused(case.n)
        check_reasons(case, result)
    check_numbers(case, result)
    if case.should_match:
        for site in result.sites:
            check_spec(case, site.spec, scale_on_q=case.scale_on_q or "dynamic" in options)


def check_numbers(case: Case, result: Result) -> None:
    if case.random:
        assert not any(site.fused for site in result.sites)
    elif case.rounds or result.inputs[0].dtype.is_complex:
        result.equals_eager()
    else:
        result.equals_fp64()


def check_reasons(case: Case, result: Result) -> None:
    """Whatever is found and not fused says why, and names the node and the user's line."""
    for site in result.sites:
        assert site.fused == (not site.reasons)
        assert site.location.rpartition(":")[0].endswith(".py")
        assert all(reason.message and reason.node for reason in site.reasons)
    if case.because is not None:
        reasons = {reason.reason.value for site in result.sites for reason in site.reasons}
        assert case.because in reasons, f"{reasons}: {result.messages()}"


def check_spec(case: Case, spec: Any, scale_on_q: bool) -> None:
    """Scale, band and groups of a match. Floats of a module are symbols with dynamic=True, and go onto q."""
    if case.n == 1:
        on_q = scale_on_q and spec.scale == 1.0
        assert on_q or case.scale is None or spec.scale == pytest.approx(case.scale)
        assert (spec.band.upper is not None or spec.band.lower is not None) == (case.causal or case.band)
        assert not case.causal or str(spec.band) == "causal"
    if case.kv_heads is not None:
        assert spec.kv_heads == case.kv_heads

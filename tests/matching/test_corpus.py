"""Every case of the corpus: what must be fused is, what must not is not, and either way the numbers are eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.corpus import Case, load
from tests.matching.harness import fuse

CASES = load()
LEVELS = {
    "static": {},
    "dynamic": {"dynamic": True},
    "aten": {"grad": False, "aten": True},
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, level: str) -> None:
    options: dict[str, Any] = LEVELS[level]
    function, inputs = case.build("cpu", torch.float32)
    if isinstance(function, torch.nn.Module):
        function.train(case.train)
    result = fuse(function, *inputs, **options)
    grad = options.get("grad", True)
    if not (case.grad_only and not grad):
        result.fused(case.n)
    random = any(word in case.reason for word in ("dropout", "noise"))
    if not random and not (case.should_match is False and inputs[0].dtype.is_complex):
        result.equals_fp64()
    if case.should_match and case.n == 1:
        check_spec(case, result)


def check_spec(case: Case, result: Any) -> None:
    """Scale, band and groups of the one match."""
    spec = next(site.spec for site in result.sites if site.fused)
    if case.scale is not None and not case.scale_on_q:
        assert spec.scale == pytest.approx(case.scale) or spec.scale == pytest.approx(1.0)
    assert (spec.band.upper is not None) == (case.causal or case.band)
    if case.kv_heads is not None:
        assert spec.kv_heads == case.kv_heads

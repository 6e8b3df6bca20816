"""A sample of the grid of problems: every axis against every other, by seed. `tests.operators.grid` runs more."""

from __future__ import annotations

import pytest

from .grid import cases, run


@pytest.mark.parametrize("part", range(5))
def test_forward_problems_drawn_by_seed(part: int) -> None:
    failed = {case: fault for case in cases(50, seed=100 + part, texts=6) if (fault := run(case, backward=False).fault)}
    assert not failed


@pytest.mark.parametrize("part", range(4))
def test_backward_problems_drawn_by_seed(part: int) -> None:
    failed = {case: fault for case in cases(30, seed=200 + part, texts=4) if (fault := run(case, backward=True).fault)}
    assert not failed

"""How far from float64 a result may be: relative error of the whole tensor and of its worst row.

The numbers are those of the design: outputs are rounded once to their dtype, everything inside is float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

FORWARD = {torch.float32: 2e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}
BACKWARD = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}

WORST_ROW = 2.0
"""What a whole tensor averages out: the last rounding alone can put a row of 8 float16 numbers 4.9e-4 off, and the
weights are rounded to float16 before the second product, which shows in a row whose values nearly cancel."""


def forward(dtype: torch.dtype, largest_score: float) -> float:
    """What out may be off where scores are as large as `largest_score`.

    exp() turns a score's absolute error into a weight's relative error, and a float32 score of 100 is rounded by up to
    half a unit in its last place, 100 * 2**-24 = 6e-6, whatever computes it. Below 33 the design's budget is larger.
    """
    return max(FORWARD[dtype], largest_score * 2.0**-24)


def relative_error(got: Tensor, oracle: Tensor, least: float = 0.0) -> float:
    """||got - oracle|| / max(||oracle||, least), in float64; inf where anything is NaN that should not be."""
    got, oracle = got.detach().cpu().double(), oracle.detach().cpu().double()
    assert got.shape == oracle.shape, f"shape {tuple(got.shape)}, oracle {tuple(oracle.shape)}"
    difference = (got - oracle).norm()
    if not torch.isfinite(difference):
        return float("inf")
    return (difference / oracle.norm().clamp_min(max(least, 1e-30))).item()


def check(name: str, got: Tensor, oracle: Tensor, budget: float, least: float = 0.0) -> None:
    """Fails with the error and the budget. least: the least norm that the error is measured by."""
    error = relative_error(got, oracle, least)
    assert error <= budget, f"{name}: relative error {error:.2e}, budget {budget:.0e}"


def check_rows(name: str, got: Tensor, oracle: Tensor, budget: float, least: Tensor | None = None) -> float:
    """||got - oracle|| / ||oracle|| of the whole tensor within the budget, and of its worst row within WORST_ROW of it.

    least: what errors are measured by at least, as in `Oracle` (over a single key the softmax is constant, and dq and
    dk are 0). Returns the worst row's error as a share of what is allowed.
    """
    got, oracle = got.detach().cpu().double(), oracle.detach().cpu().double()
    least = oracle.new_zeros(oracle.shape) if least is None else least
    check(name, got, oracle, budget, least.norm().item())
    if not oracle.numel():
        return 0.0
    measure = torch.maximum(oracle.norm(dim=-1), least.norm(dim=-1)).clamp_min(1e-30)
    worst = ((got - oracle).norm(dim=-1) / measure).max().item()
    assert worst <= budget * WORST_ROW, f"{name}: worst row {worst:.2e}, budget {budget:.0e} times {WORST_ROW}"
    return worst / (budget * WORST_ROW)

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


def check_rows(name: str, got: Tensor, oracle: Tensor, budget: float, terms: Tensor | None = None) -> None:
    """||got - oracle|| / ||oracle|| of the whole tensor within the budget, and of its worst row within WORST_ROW of it.

    terms: the oracle with every term of its sums taken without its sign. Where they cancel (over a single key the
    softmax is constant, and dq and dk are 0), an error relative to what is left says nothing: a tenth of the terms is
    the least that an error is measured by.
    """
    got, oracle = got.detach().cpu().double(), oracle.detach().cpu().double()
    least = oracle.new_zeros(oracle.shape) if terms is None else terms / 10
    check(name, got, oracle, budget, least.norm().item())
    if not oracle.numel():
        return
    measure = torch.maximum(oracle.norm(dim=-1), least.norm(dim=-1)).clamp_min(1e-30)
    worst = ((got - oracle).norm(dim=-1) / measure).max().item()
    assert worst <= budget * WORST_ROW, f"{name}: worst row {worst:.2e}, budget {budget:.0e} times {WORST_ROW}"

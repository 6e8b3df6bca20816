"""PyTorch's own Metal attention, the flex template, from its text: both of its paths, checked, without a report."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

from inductor_mps_attention import simulator


@pytest.mark.parametrize(("head_dim", "matrix_path"), [(64, True), (20, False)])
@pytest.mark.parametrize(
    ("dtype", "budget"), [(torch.float32, 1e-6), (torch.float16, 5e-4), (torch.bfloat16, 4e-3)], ids=str
)
def test_flex_attention_agrees_with_float64(
    dtype: torch.dtype, budget: float, head_dim: int, matrix_path: bool
) -> None:
    simulator.reset_shaders()
    q, k, v = (torch.randn(1, 2, 64, head_dim).to("mps", dtype) for _ in "qkv")
    with torch.no_grad(), simulator.options(check="full", check_only=lambda text: "flex" in text.lower()):
        out = torch.compile(flex_attention)(q, k, v)
    template = next(text for text in simulator.shaders() if "flex" in text.lower())
    assert ("simdgroup_multiply" in template) is matrix_path
    exact = F.scaled_dot_product_attention(*(t.cpu().double() for t in (q, k, v)))
    assert (out.cpu().double() - exact).norm() <= budget * exact.norm()

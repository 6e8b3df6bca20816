"""`flash_attention`: SDPA's conventions around the operator."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import inductor_mps_attention as ima
from tests.support import budgets


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_equals_sdpa_with_any_number_of_leading_dims(lead: tuple[int, ...], is_causal: bool) -> None:
    q, k, v = (torch.randn(*lead, 4, 20, 32) for _ in "qkv")
    on_device = [t.to("mps").requires_grad_() for t in (q, k, v)]
    out = ima.flash_attention(*on_device, is_causal=is_causal)
    out.sum().backward()
    doubles = [t.double().requires_grad_() for t in (q, k, v)]
    expected = F.scaled_dot_product_attention(*doubles, is_causal=is_causal)
    expected.sum().backward()
    budgets.check("out", out, expected, budgets.FORWARD[torch.float32])
    for got, oracle in zip(on_device, doubles, strict=True):
        budgets.check("gradient", got.grad, oracle.grad, budgets.BACKWARD[torch.float32])


def test_return_lse() -> None:
    q, k, v = (torch.randn(2, 4, 20, 32, device="mps") for _ in "qkv")
    _, logsumexp = ima.flash_attention(q, k, v, scale=0.5, return_lse=True)
    expected = torch.logsumexp(q.cpu().double() @ k.cpu().double().mT * 0.5, -1)
    budgets.check("logsumexp", logsumexp, expected, 1e-6)


def test_grouped_heads_need_to_be_asked_for() -> None:
    q, k, v = (torch.randn(2, heads, 20, 32, device="mps") for heads in (4, 2, 2))
    with pytest.raises(ValueError, match="enable_gqa"):
        ima.flash_attention(q, k, v)
    expected = F.scaled_dot_product_attention(*(t.cpu().double() for t in (q, k, v)), enable_gqa=True)
    budgets.check("out", ima.flash_attention(q, k, v, enable_gqa=True), expected, budgets.FORWARD[torch.float32])


def test_autocast_casts_as_it_casts_sdpa() -> None:
    q, k, v = (torch.randn(2, 4, 20, 32, device="mps") for _ in "qkv")
    with torch.autocast("mps", dtype=torch.bfloat16):
        assert ima.flash_attention(q, k, v).dtype == torch.bfloat16


def test_two_dims_are_refused() -> None:
    with pytest.raises(ValueError, match="3 or more dims"):
        ima.flash_attention(*(torch.randn(5, 8) for _ in "qkv"))

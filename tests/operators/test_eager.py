"""`flash_attention`: SDPA's conventions around the operator."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import inductor_mps_attention as ima
from inductor_mps_attention import simulator
from inductor_mps_attention.errors import UnsupportedAttention
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


def test_without_gradients_no_logsumexp_takes_memory_or_is_written() -> None:
    q, k, v = (torch.randn(1, 512, 16, 8, device="mps") for _ in "qkv")

    def peak(*tensors: torch.Tensor, **options: bool) -> int:
        before = torch.mps.current_allocated_memory()
        simulator.reset_peak_memory()
        ima.flash_attention(*tensors, **options)
        return simulator.peak_memory() - before

    logsumexp = 512 * 16 * 4
    without = peak(q, k, v)
    assert without < q.nbytes + logsumexp
    assert peak(q, k, v, return_lse=True) >= without + logsumexp
    assert peak(q.requires_grad_(), k, v) >= without + logsumexp
    with torch.no_grad():
        assert peak(q, k, v) == without


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


def test_autocast_leaves_float64_and_devices_without_autocast() -> None:
    double = torch.randn(1, 2, 5, 8, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ima.flash_attention(double, double, double).dtype == torch.float64
    meta = torch.empty(1, 2, 5, 8, device="meta")
    assert ima.flash_attention(meta, meta, meta).shape == (1, 2, 5, 8)


def test_leading_dims_must_be_the_same() -> None:
    q, k = torch.randn(2, 3, 2, 9, 16), torch.randn(3, 2, 2, 9, 16)
    with pytest.raises(ValueError, match="dims before the heads"):
        ima.flash_attention(q, k, k)


def test_a_tensor_as_scale_would_lose_its_gradient() -> None:
    q = torch.randn(1, 2, 9, 16)
    with pytest.raises(TypeError, match="scale must be a number"):
        ima.flash_attention(q, q, q, scale=torch.tensor(0.3, requires_grad=True))


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.hessian])
def test_functorch_s_derivatives_are_refused_in_one_sentence(transform) -> None:
    q = torch.randn(1, 2, 9, 16)
    with pytest.raises(UnsupportedAttention, match=r"inside torch\.func\.grad"):
        transform(lambda x: ima.flash_attention(x, q, q).sum())(q)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_into_one_graph(dynamic: bool) -> None:
    """A graph break would split every model that calls it."""
    compiled = torch.compile(
        lambda q, k, v: ima.flash_attention(q * 2, k, v, is_causal=True) + 1,
        backend="aot_eager",
        fullgraph=True,
        dynamic=dynamic,
    )
    q, k, v = (torch.randn(1, 2, 9, 16, device="mps", requires_grad=True) for _ in "qkv")
    compiled(q, k, v).sum().backward()
    expected = F.scaled_dot_product_attention(q * 2, k, v, is_causal=True) + 1
    torch.testing.assert_close(compiled(q, k, v), expected)


def test_two_dims_are_refused() -> None:
    with pytest.raises(ValueError, match="3 or more dims"):
        ima.flash_attention(*(torch.randn(5, 8) for _ in "qkv"))

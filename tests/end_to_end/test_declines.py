"""What is left alone: the reason, and a result that is eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import inductor_mps_attention as ima
from inductor_mps_attention import Reason
from tests.support.models import Attention, Decoder


def qkv(device: str = "mps") -> list[Tensor]:
    return [torch.randn(2, 4, 33, 32).to(device).requires_grad_() for _ in "qkv"]


def compiled_like_eager(fn: Callable[..., Any], *inputs: Tensor) -> None:
    """Same values and gradients, compiled and eager, with the same random numbers."""
    results = []
    for run in (fn, torch.compile(fn, backend="mps_attention")):
        fresh = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
        torch.manual_seed(3)
        out = run(*fresh)
        sum(o.sum() for o in (out if isinstance(out, tuple) else (out,))).backward()
        results.append([*(out if isinstance(out, tuple) else (out,)), *(t.grad for t in fresh if t.requires_grad)])
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)


def only_reason(fn: Callable[..., Any], *inputs: Tensor) -> Reason:
    report = ima.explain(fn, *inputs)
    assert (report.fused, report.declined) == (0, 1), str(report)
    return report.sites[0].reasons[0].reason


def test_a_mask_that_is_an_input() -> None:
    mask = torch.rand(33, 33, device="mps") > 0.3
    fn = lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # noqa: E731
    assert only_reason(fn, *qkv(), mask) is Reason.MASK
    compiled_like_eager(fn, *qkv(), mask)
    assert ima.stats()["declined"] == {"MASK": 1}


def test_dropout_in_training() -> None:
    fn = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)  # noqa: E731
    assert only_reason(fn, *qkv()) is Reason.DROPOUT
    out = torch.compile(fn, backend="mps_attention")(*qkv())
    assert torch.isfinite(out).all()
    assert ima.stats() == {"fused": 0, "declined": {"DROPOUT": 1}, "launches": {}}


def test_weights_that_are_returned() -> None:
    def fn(q, k, v):
        weights = (q @ k.mT * 0.2).softmax(-1)
        return weights @ v, weights

    assert only_reason(fn, *qkv()) is Reason.INNER_VALUE_USED
    compiled_like_eager(fn, *qkv())


def test_tensors_on_the_cpu() -> None:
    """Nothing is fused, the reason is DEVICE, and the result is what Inductor alone computes."""
    model = Attention(32, 2, "manual")
    x = torch.randn(2, 33, 32)
    report = ima.explain(model, x)
    assert {r.reason for site in report.sites for r in site.reasons} == {Reason.DEVICE}
    with torch.no_grad():
        ours = torch.compile(model, backend="mps_attention")(x)
        torch._dynamo.reset()
        assert torch.equal(ours, torch.compile(model, backend="inductor")(x))
    assert ima.stats()["fused"] == 0


def test_no_device_named_mps_but_eager_values_for_short_sequences() -> None:
    fn = lambda q, k, v: (q @ k.mT * 0.2).softmax(-1) @ v  # noqa: E731
    out = torch.compile(fn, backend="mps_attention", options={"attention.min_seq_len": 64})(*qkv())
    assert torch.isfinite(out).all()
    assert ima.stats()["declined"] == {"SHORT": 1}


def test_kinds_that_are_not_asked_for() -> None:
    def fn(q, k, v):
        return F.scaled_dot_product_attention(q, k, v) + (q @ k.mT).softmax(-1) @ v

    torch.compile(fn, backend="mps_attention", options={"attention.patterns": ("manual",)})(*qkv())
    assert ima.stats()["fused"] == 1


def test_fuel_bisects_to_one_rewrite() -> None:
    model = Decoder("sdpa", layers=3).to("mps")
    x = torch.randint(0, 65, (2, 33)).to("mps")
    torch.compile(model, backend="mps_attention", options={"attention.fuel": 2})(x)
    assert (ima.stats()["fused"], ima.stats()["declined"]) == (2, {"FUEL": 1})


@pytest.mark.parametrize("head_dim", [257, 300])
def test_a_head_dim_without_kernel(head_dim: int) -> None:
    fn = lambda q, k, v: F.scaled_dot_product_attention(q, k, v)  # noqa: E731
    q, k, v = (torch.randn(1, 2, 20, head_dim, device="mps", requires_grad=True) for _ in "qkv")
    report = ima.explain(fn, q, k, v)
    assert report.sites[0].reasons[0].reason is Reason.HEAD_DIM
    assert str(head_dim) in report.sites[0].reasons[0].message
    compiled_like_eager(fn, q, k, v)

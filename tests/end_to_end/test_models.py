"""Whole models through the backend on the device: modules of torch.nn and of transformers, forward and gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import inductor_mps_attention as ima
from inductor_mps_attention import Reason
from tests.support import budgets


def compare_training(model: nn.Module, fused: int, call, *inputs: Tensor) -> None:
    """Loss and all gradients of `call(model, *inputs)`, compiled on the device, against float64 eager on the CPU."""
    oracle, eager = copy.deepcopy(model).double(), copy.deepcopy(model)
    as_double = [t.double() if t.is_floating_point() else t for t in inputs]
    expected, plain = call(oracle, *as_double), call(eager, *inputs)
    expected.backward()
    plain.backward()
    model = model.to("mps")
    loss = torch.compile(lambda *xs: call(model, *xs), backend="mps_attention")(*(t.to("mps") for t in inputs))
    loss.backward()
    assert ima.stats()["fused"] == fused, ima.stats()
    assert ima.stats()["launches"]["backward_dkv"] == fused
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for (name, got), exact, own in zip(model.named_parameters(), oracle.parameters(), eager.parameters(), strict=True):
        allowed = max(1.5 * budgets.relative_error(own.grad, exact.grad), budgets.BACKWARD[torch.float32])
        # A bias of keys shifts all scores of a row alike: its gradient is 0, and an error relative to 0 says nothing.
        budgets.check(name, got.grad, exact.grad, allowed, least=1e-4 * exact.norm().item())


@pytest.mark.parametrize("batch_first", [True, False])
def test_multi_head_attention_is_opened_and_fused(batch_first: bool) -> None:
    model = nn.MultiheadAttention(64, 4, batch_first=batch_first)
    x = torch.randn(2, 33, 64)
    compare_training(model, 1, lambda m, x: m(x, x, x, need_weights=False)[0].square().sum(), x)


def test_transformer_encoder_layer() -> None:
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    compare_training(layer, 1, lambda m, x: m(x).sin().sum(), torch.randn(2, 20, 64))


def llama(implementation: str) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        attn_implementation=implementation,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_llama_with_grouped_heads(implementation: str) -> None:
    """Its causal mask is built in the graph, its key and value heads are repeated in the graph."""
    ids = torch.randint(0, 97, (2, 40))
    compare_training(llama(implementation).train(), 2, lambda m, ids: m(input_ids=ids, labels=ids).loss, ids)


def test_llama_with_padding_is_declined_by_name() -> None:
    model = llama("sdpa").to("mps")
    ids = torch.randint(0, 97, (2, 20), device="mps")
    mask = torch.ones_like(ids)
    report = ima.explain(model, input_ids=ids, attention_mask=mask)
    assert {reason.reason for site in report.sites for reason in site.reasons} == {Reason.MASK}
    assert "attention_mask" in str(report)


def test_llama_at_varying_lengths_stays_fused() -> None:
    """Automatic dynamic shapes: the second length compiles a symbolic graph, whose mask is still a band."""
    model = llama("sdpa").train()
    oracle = copy.deepcopy(model).double()
    model = model.to("mps")
    compiled = torch.compile(model, backend="mps_attention")
    for length in (24, 31, 17):
        ids = torch.randint(0, 97, (2, length))
        loss = compiled(input_ids=ids.to("mps"), labels=ids.to("mps")).loss
        loss.backward()
        assert loss.item() == pytest.approx(oracle(input_ids=ids, labels=ids).loss.item(), rel=1e-5)
    assert ima.stats() == {
        "fused": 4,
        "declined": {},
        "launches": dict.fromkeys(("forward", "backward_delta", "backward_dq", "backward_dkv"), 6),
    }


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_window_and_a_causal_band_that_ends_at_the_last_key(dynamic: bool) -> None:
    def windowed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries, keys = torch.arange(q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device)
        seen = (keys <= queries) & (keys > queries - 7)
        return (q @ k.mT * 0.2).masked_fill(~seen, float("-inf")).softmax(-1) @ v

    compiled = torch.compile(windowed, backend="mps_attention", dynamic=dynamic)
    for length in (30, 45) if dynamic else (30,):
        q, k, v = (torch.randn(1, 2, length, 32, requires_grad=True) for _ in "qkv")
        on_device = [t.detach().to("mps").requires_grad_() for t in (q, k, v)]
        compiled(*on_device).sum().backward()
        windowed(*(doubles := [t.detach().double().requires_grad_() for t in (q, k, v)])).sum().backward()
        for got, exact in zip(on_device, doubles, strict=True):
            budgets.check("gradient", got.grad, exact.grad, budgets.BACKWARD[torch.float32])
    assert ima.stats()["fused"] == 1

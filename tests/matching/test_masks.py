"""Masks: what an input, a buffer and an empty row do to a match; one graph for all lengths."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from inductor_mps_attention.errors import Reason
from inductor_mps_attention.matching import bands
from tests.matching.harness import tensors


def qkv() -> tuple[torch.Tensor, ...]:
    return tensors(2, 4, 33, 64)


def causal(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()


@pytest.mark.parametrize(
    "mask", [torch.ones(33, 33, dtype=torch.bool), torch.zeros(2, 4, 33, 33)], ids=["bool", "float"]
)
def test_a_mask_input_is_named(fused, mask):
    result = fused(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), *qkv(), mask)
    result.declined(Reason.MASK).equals_fp64()
    assert "depends on input `mask`" in result.messages()[0]


def test_a_buffer_is_declined_with_a_hint(fused):  # nanoGPT: Dynamo guards no buffer's content
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("bias", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))

        def forward(self, q, k, v):
            scores = (q @ k.mT * 0.125).masked_fill(self.bias[:, :, :33, :33] == 0, -math.inf)
            return scores.softmax(-1) @ v

    result = fused(Attention(), *qkv()).declined(Reason.MASK).equals_fp64()
    assert "`self.bias`, a registered buffer" in result.messages()[0]
    assert "is_causal=True" in result.messages()[0]


def test_one_graph_for_all_lengths(fused):
    def attention(q, k, v):
        return (q @ k.mT * 0.125).masked_fill(~causal(q, k), -math.inf).softmax(-1) @ v

    for length in (5, 16, 33):
        result = fused(attention, *tensors(2, 4, length, 64), dynamic=True)
        assert result.fused().equals_fp64().band() == "causal"


def test_a_bound_that_is_a_size_expression(fused):
    def attention(q, k, v):
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
        return F.scaled_dot_product_attention(q, k, v, mask)

    (q,) = tensors(2, 4, 9, 64, count=1)
    k, v = tensors(2, 4, 33, 64, count=2)
    for dynamic in (False, True):
        fused(attention, q, k, v, dynamic=dynamic).fused().equals_fp64()


def test_an_empty_row_of_a_hand_written_softmax_stays_nan(fused):
    def attention(q, k, v):
        return (q @ k.mT).masked_fill(~causal(q, k).tril(-1), -math.inf).softmax(-1) @ v

    result = fused(attention, *qkv(), grad=False).declined(Reason.MASK).equals_fp64()
    assert result.outputs[0][:, :, 0].isnan().all()
    assert "may see no key" in result.messages()[0]


def test_an_empty_row_of_sdpa_is_zero(fused):
    result = fused(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, causal(q, k).tril(-1)), *qkv())
    result.fused().equals_fp64()
    assert not result.outputs[0][:, :, 0].any()


def test_a_mask_is_read_once_for_all_layers(fused, monkeypatch):
    reads = []
    read = bands.MaskReader._read
    monkeypatch.setattr(bands.MaskReader, "_read", lambda self, *a: reads.append(a) or read(self, *a))

    def layers(q, k, v):
        mask = causal(q, k)
        for _ in range(5):
            q = F.scaled_dot_product_attention(q, k, v, mask)
        return q

    fused(layers, *qkv()).fused(5).equals_fp64()
    assert len(reads) == 1

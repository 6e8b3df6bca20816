"""nn.MultiheadAttention is one leaf in Dynamo's graph: written out where that is safe."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from inductor_mps_attention.errors import Reason
from tests.matching.harness import tensors


class Leaf(nn.Module):
    def __init__(self, attention: nn.Module, **given) -> None:
        super().__init__()
        self.attention, self.given = attention, given

    def forward(self, query, key, value):
        return self.attention(query, key, value, **self.given)[0]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_self_attention(fused, batch_first, dynamic, bias):
    torch.manual_seed(0)
    leaf = Leaf(nn.MultiheadAttention(64, 4, batch_first=batch_first, bias=bias), need_weights=False)
    (x,) = tensors(2, 16, 64, count=1)
    result = fused(leaf, x, x, x, dynamic=dynamic).fused().equals_fp64(backward=2e-5)
    assert result.sites[0].kind == "mha"


def test_cross_attention_with_other_channels(fused):
    leaf = Leaf(nn.MultiheadAttention(64, 4, batch_first=True, kdim=32, vdim=48), need_weights=False)
    (q,), (k,), (v,) = tensors(2, 16, 64, count=1), tensors(2, 9, 32, count=1), tensors(2, 9, 48, count=1)
    fused(leaf, q, k, v).fused().equals_fp64(backward=2e-5)


def test_weights_that_nobody_reads(fused):
    leaf = Leaf(nn.MultiheadAttention(64, 4, batch_first=True))
    fused(leaf, *tensors(2, 16, 64)).fused().equals_fp64(backward=2e-5)


def test_weights_that_are_returned(fused):
    result = fused(nn.MultiheadAttention(64, 4, batch_first=True), *tensors(2, 16, 64))
    result.declined(Reason.INNER_VALUE_USED).equals_fp64(backward=2e-5)
    assert "returned" in result.messages()[0]


def test_dropout_in_training(fused):
    leaf = Leaf(nn.MultiheadAttention(64, 4, dropout=0.1, batch_first=True), need_weights=False)
    fused(leaf, *tensors(2, 16, 64)).declined(Reason.DROPOUT)


def test_key_padding(fused):
    leaf = Leaf(nn.MultiheadAttention(64, 4, batch_first=True), key_padding_mask=torch.zeros(2, 16, dtype=torch.bool))
    fused(leaf, *tensors(2, 16, 64)).declined(Reason.MASK).equals_fp64(backward=2e-5)


@pytest.mark.parametrize("given", [{"add_zero_attn": True}, {"add_bias_kv": True}], ids=str)
def test_added_keys(fused, given):
    leaf = Leaf(nn.MultiheadAttention(64, 4, batch_first=True, **given), need_weights=False)
    fused(leaf, *tensors(2, 16, 64)).declined(Reason.SCORE_MODIFIED)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_causal_mask_made_in_the_graph(fused, dynamic):
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

        def forward(self, x):
            hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            return self.attention(x, x, x, need_weights=False, attn_mask=hidden)[0]

    result = fused(Causal(), *tensors(2, 16, 64, count=1), dynamic=dynamic).fused().equals_fp64(backward=2e-5)
    assert result.band() == "causal"


def test_a_mask_that_is_an_input(fused):
    leaf = Leaf(nn.MultiheadAttention(64, 4, batch_first=True), need_weights=False, attn_mask=torch.zeros(16, 16))
    fused(leaf, *tensors(2, 16, 64)).declined(Reason.MASK)


def test_encoder_layer_in_training(fused):
    layer = nn.TransformerEncoderLayer(64, 4, 64, batch_first=True, dropout=0.0)
    fused(layer, *tensors(2, 16, 64, count=1)).fused().equals_fp64(forward=5e-6, backward=5e-5)


def test_the_graph_is_as_before_when_the_leaf_is_declined(fused):
    leaf = Leaf(nn.MultiheadAttention(64, 4, batch_first=True), need_weights=False)
    result = fused(leaf, *tensors(2, 16, 64), device_types=("mps",)).declined(Reason.DEVICE)
    assert "aten" not in str(result.graphs[0])

"""nn.MultiheadAttention is one leaf in Dynamo's graph: written out where that is safe."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
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


LAYERS = {
    "encoder": lambda: nn.TransformerEncoderLayer(64, 4, 64, batch_first=True, dropout=0.0),
    "encoder, norm first": lambda: nn.TransformerEncoderLayer(
        64, 4, 64, batch_first=True, dropout=0.0, norm_first=True
    ),
    "encoder, length first": lambda: nn.TransformerEncoderLayer(64, 4, 64, dropout=0.0, bias=False),
    "decoder": lambda: nn.TransformerDecoderLayer(64, 4, 64, batch_first=True, dropout=0.0),
    "decoder, norm first": lambda: nn.TransformerDecoderLayer(64, 4, 64, dropout=0.0, norm_first=True),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_transformer_layers(fused, name, training):
    """In eval nn.TransformerEncoderLayer takes its fast path only without gradients."""
    torch.manual_seed(0)
    layer = LAYERS[name]().train(training)
    inputs = tensors(2, 16, 64, count=2 if "decoder" in name else 1)
    result = fused(layer, *inputs).fused(len(inputs)).equals_fp64(forward=5e-6, backward=5e-5)
    assert {site.kind for site in result.sites} == {"mha"}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_causal_encoder_layer(fused, dynamic):
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(64, 4, 64, batch_first=True, dropout=0.0)

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.layer(x, src_mask=mask, is_causal=True)

    result = fused(Causal(), *tensors(2, 16, 64, count=1), dynamic=dynamic).fused()
    result.equals_fp64(forward=5e-6, backward=5e-5)
    assert result.band() == "causal"


def test_a_causal_decoder_layer(fused):
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerDecoderLayer(64, 4, 64, batch_first=True, dropout=0.0)

        def forward(self, x, memory):
            hidden = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
            return self.layer(x, memory, tgt_mask=hidden, tgt_is_causal=True)

    result = fused(Causal(), *tensors(2, 16, 64, count=2)).fused(2).equals_fp64(forward=5e-6, backward=5e-5)
    assert [str(site.spec.band) for site in result.sites] == ["causal", "full"]


def test_layers_as_export_writes_them(fused):
    layer = nn.TransformerDecoderLayer(64, 4, 64, batch_first=True, dropout=0.0)
    fused(layer, *tensors(2, 16, 64, count=2), aten=True).fused(2).equals_fp64(forward=5e-6, backward=5e-5)


def test_dropout_of_the_layer_is_the_attention_s_too(fused):
    layer = nn.TransformerEncoderLayer(64, 4, 64, batch_first=True, dropout=0.1)
    fused(layer, *tensors(2, 16, 64, count=1)).declined(Reason.DROPOUT)
    fused(layer.eval(), *tensors(2, 16, 64, count=1)).fused()


def test_the_function_itself(fused):
    def call(x, weight, bias, out_weight, out_bias):
        return F.multi_head_attention_forward(
            *(x, x, x, 64, 4, weight, bias, None, None, False, 0.0, out_weight, out_bias), need_weights=False
        )[0]

    x, weight = tensors(16, 2, 64, count=1)[0], tensors(192, 64, count=1)[0] * 0.1
    given = (x, weight, torch.randn(192), torch.randn(64, 64) * 0.1, torch.randn(64))
    fused(call, *given).fused().equals_fp64(forward=5e-6, backward=5e-5)

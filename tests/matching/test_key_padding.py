"""Band and key padding: recognised, declined unless asked for, and what rows without a key give in each spelling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from inductor_mps_attention.config import Options
from inductor_mps_attention.errors import Reason
from inductor_mps_attention.operators import flash_forward
from tests.matching.harness import Result, tensors

ON = Options(key_padding=True)


def qkv(heads: int = 4) -> tuple[Tensor, ...]:
    return (*tensors(2, 4, 17, 16, count=1), *tensors(2, heads, 17, 16, count=2))


def right_padded() -> Tensor:
    return torch.arange(17) < torch.tensor([[17], [9]])


def left_padded() -> Tensor:
    """The first rows of a causal attention see no key in the second batch element."""
    return torch.arange(17) >= torch.tensor([[0], [6]])


def causal(q: Tensor, k: Tensor) -> Tensor:
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()


def sdpa_bool(q, k, v, keep):
    return F.scaled_dot_product_attention(q, k, v, causal(q, k) & keep[:, None, None, :])


def sdpa_float(fill: Callable[[Tensor], float]):
    def attention(q, k, v, keep):
        seen = causal(q, k) & keep[:, None, None, :]
        mask = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, fill(q))
        return F.scaled_dot_product_attention(q, k, v, mask)

    return attention


def least(q: Tensor) -> float:
    return torch.finfo(q.dtype).min


def infinite(q: Tensor) -> float:
    return -math.inf


def filled(fill: Callable[[Tensor], float]):
    def attention(q, k, v, keep):
        seen = causal(q, k) & keep[:, None, None, :]
        return (q @ k.mT * 0.25).masked_fill(~seen, fill(q)).softmax(-1) @ v

    return attention


def added(fill: Callable[[Tensor], float]):
    def attention(q, k, v, keep):
        seen = causal(q, k) & keep[:, None, None, :]
        mask = torch.where(seen, 0.0, torch.full((), fill(q), dtype=q.dtype))
        return (q @ k.mT * 0.25 + mask).softmax(-1) @ v

    return attention


SPELLINGS = {
    "sdpa bool": sdpa_bool,
    "sdpa -inf": sdpa_float(infinite),
    "sdpa finfo.min": sdpa_float(least),
    "masked_fill -inf": filled(infinite),
    "masked_fill finfo.min": filled(least),
    "added -inf": added(infinite),
    "added finfo.min": added(least),
}


def calls(result: Result) -> list[Any]:
    return [node for graph in result.graphs for node in graph.nodes if node.target is flash_forward]


@pytest.mark.parametrize("name", SPELLINGS)
def test_it_is_declined_with_the_option_that_fuses_it(fused, name):
    result = fused(SPELLINGS[name], *qkv(), right_padded()).declined(Reason.MASK).equals_fp64()
    assert "attention.key_padding=True" in result.messages()[0]
    assert "`keep`" in result.messages()[0]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("padding", [right_padded, left_padded])
@pytest.mark.parametrize("name", SPELLINGS)
def test_rows_without_a_key_are_what_eager_gives(fused, name, padding, dynamic):
    """Values and gradients, of padded rows too: zero, NaN, or the mean of v with what flows through the scores."""
    result = fused(SPELLINGS[name], *qkv(), padding(), options=ON, dynamic=dynamic).fused()
    # The decomposition that MPS takes; the CPU's own kernel divides no gradient of such a row by the number of keys.
    with sdpa_kernel(SDPBackend.MATH):
        result.equals_fp64(forward=5e-6, backward=2e-5)
    assert result.band() == "causal"


@pytest.mark.parametrize("name", ["masked_fill -inf", "added -inf", "masked_fill finfo.min", "added finfo.min"])
def test_rows_without_a_key_with_grouped_heads(fused, name):
    def attention(q, k, v, keep):
        return SPELLINGS[name](q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), keep)

    q, _, _ = qkv()
    k, v = tensors(2, 2, 17, 16, count=2)
    result = fused(attention, q, k, v, left_padded(), options=ON).fused()
    result.equals_fp64(forward=5e-6, backward=2e-5)
    assert result.sites[0].spec.kv_heads == 2


def test_nothing_is_added_where_zero_is_right(fused):
    result = fused(sdpa_bool, *qkv(), left_padded(), options=ON).fused()
    assert not any("where" in str(node.target) for node in result.graphs[0].nodes)


def test_float16_tells_masked_scores_apart(fused):
    """-65504 + s is not -65504 in float16, so a row without a key is no plain mean."""
    halves = [x.half() for x in qkv()]
    result = fused(added(least), *halves, left_padded(), options=ON, grad=False).declined(Reason.MASK)
    assert "float16" in result.messages()[0]
    fused(filled(least), *halves, left_padded(), options=ON, grad=False).fused()


def test_one_key_mask_for_all_layers(fused):
    def layers(q, k, v, tokens):
        mask = causal(q, k) & (tokens != 3)[:, None, None, :]
        for _ in range(5):
            q = F.scaled_dot_product_attention(q, k, v, mask)
        return q

    tokens = torch.randint(0, 6, (2, 17))
    result = fused(layers, *qkv(), tokens, options=ON).fused(5).equals_fp64()
    assert len({call.args[3] for call in calls(result)}) == 1


FORMS: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "integers as booleans": lambda q, k, keep: keep.long().bool()[:, None, None, :],
    "comparison with zero": lambda q, k, keep: (keep.long() != 0)[:, None, None, :].expand(-1, 1, q.shape[-2], -1),
    "hidden keys": lambda q, k, keep: ~(~keep).view(keep.shape[0], 1, 1, -1),
    "two paddings": lambda q, k, keep: keep[:, None, None, :] & ~(keep.long() * 0 > 0)[:, None, None],
    "four dims": lambda q, k, keep: keep[:, None, None, :].clone() & causal(q, k),
    "gathered by position": lambda q, k, keep: (
        keep[torch.arange(2)[:, None, None, None], torch.arange(17)[None, None, None]] & causal(q, k)
    ),
    "a slice of a longer one": lambda q, k, keep: torch.cat([~keep, keep], 1)[:, None, None, 17:],
    "one for the batch": lambda q, k, keep: keep[1][None],
    "a window": lambda q, k, keep: (causal(q, k) & causal(q, k).triu(-4)) & keep[:, None, None, :],
    "both ways": lambda q, k, keep: keep[:, None, None, :] & causal(q, k) & keep[:, None, None, :],
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", FORMS)
def test_forms_of_a_key_mask(fused, name, dynamic):
    def attention(q, k, v, keep):
        return F.scaled_dot_product_attention(q, k, v, FORMS[name](q, k, keep))

    fused(attention, *qkv(), right_padded(), options=ON, dynamic=dynamic).fused().equals_fp64()


NO_KEY_MASKS: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "padding of queries": lambda q, k, keep: keep[:, None, :, None],
    "of queries and keys": lambda q, k, keep: keep[:, None, :, None] & keep[:, None, None, :],
    "another one in each head": lambda q, k, keep: keep[:, None, None, :] ^ (torch.rand(1, 4, 1, 17) > 2),
    "or causal": lambda q, k, keep: keep[:, None, None, :] | causal(q, k),
    "exclusive or": lambda q, k, keep: keep[:, None, None, :] ^ causal(q, k),
    "its diagonal": lambda q, k, keep: (keep[:, None, :] & keep[:, :, None])[:, None],
    "shifted by the row": lambda q, k, keep: (
        keep.long().cumsum(-1)[:, None, :, None] >= keep.long().cumsum(-1)[:, None, None]
    ),
    "numbers, not booleans": lambda q, k, keep: (1.0 - keep.to(q.dtype) * 0.5)[:, None, None, :],
}


@pytest.mark.parametrize("name", NO_KEY_MASKS)
def test_what_is_no_key_mask_is_declined(fused, name):
    def attention(q, k, v, keep):
        return F.scaled_dot_product_attention(q, k, v, NO_KEY_MASKS[name](q, k, keep))

    fused(attention, *qkv(), right_padded(), options=ON).declined(Reason.MASK)


def test_a_padding_that_is_written_later_is_declined(fused):
    def attention(q, k, v, keep):
        mask = causal(q, k) & keep[:, None, None, :]
        keep[:, 0] = False
        return F.scaled_dot_product_attention(q, k, v, mask)

    fused(attention, *qkv(), right_padded(), options=ON, grad=False).declined(Reason.MASK)


def test_a_padding_written_before_it_is_read_is_declined_or_right(fused):
    """Wav2Vec2 writes its mask by index: the input stands behind a setitem, which no walk of ancestors sees."""

    def attention(q, k, v, lengths):
        keep = torch.zeros(2, 17, dtype=torch.bool)
        keep[(torch.arange(2), lengths - 1)] = True
        return F.scaled_dot_product_attention(q, k, v, keep[:, None, None, :])

    fused(attention, *qkv(), torch.tensor([4, 9]), options=ON).declined(Reason.MASK).equals_fp64()


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("causal_too", [False, True])
def test_multi_head_attention(fused, need_weights, causal_too):
    """`key_padding_mask` is True where a key is hidden. With weights, an empty row is NaN; without, it is zero."""
    layer = nn.MultiheadAttention(32, 4, batch_first=True)
    hidden = ~right_padded()
    (x,) = tensors(2, 17, 32, count=1)

    def call(x, hidden):
        mask = torch.ones(17, 17, dtype=torch.bool).triu(1) if causal_too else None
        return layer(x, x, x, key_padding_mask=hidden, attn_mask=mask, need_weights=need_weights)[0]

    fused(call, x, hidden).declined(Reason.MASK)
    result = fused(call, x, hidden, options=ON).fused()
    expected = call(x, hidden)
    assert torch.allclose(result.outputs[0], expected, atol=1e-6, equal_nan=True)


def test_multi_head_attention_is_causal_is_no_more_than_a_hint_beside_padding(fused):
    """With key padding torch reads attn_mask and forgets is_causal: here a window, which is not causal alone."""
    layer = nn.MultiheadAttention(32, 4, batch_first=True)
    (x,) = tensors(2, 17, 32, count=1)

    def call(x, hidden):
        near = torch.ones(17, 17, dtype=torch.bool).tril().triu(-3)
        given = {"key_padding_mask": hidden, "attn_mask": ~near, "is_causal": True, "need_weights": False}
        return layer(x, x, x, **given)[0]

    result = fused(call, x, ~right_padded(), options=ON).fused()
    assert result.band() == "-3 <= j-i <= 0"
    assert torch.allclose(result.outputs[0], call(x, ~right_padded()), atol=1e-6)


def test_transformer_encoder_layer(fused):
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    (x,) = tensors(2, 17, 32, count=1)
    call = lambda x, hidden: layer(x, src_key_padding_mask=hidden)  # noqa: E731
    result = fused(call, x, ~right_padded(), options=ON).fused()
    assert torch.allclose(result.outputs[0], call(x, ~right_padded()), atol=1e-5)

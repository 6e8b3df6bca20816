"""Code that looks like attention and is another function. Each was rewritten by somebody, silently."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from inductor_mps_attention.errors import Reason
from tests.matching.harness import tensors


def qkv() -> tuple[torch.Tensor, ...]:
    return tensors(2, 4, 33, 64)


@pytest.mark.parametrize("dim", [0, 1, -2])
def test_softmax_over_another_axis(fused, dim):  # pytorch#196468: silently taken for the key axis
    result = fused(lambda q, k, v: (q @ k.mT * 0.5).softmax(dim) @ v, *tensors(4, 4, 4, 8))
    result.declined(Reason.SOFTMAX_AXIS).equals_fp64()
    assert "dim 3" in result.messages()[0]


def test_the_key_axis_counted_from_the_front(fused):
    fused(lambda q, k, v: (q @ k.mT * 0.5).softmax(3) @ v, *qkv()).fused().equals_fp64()


def test_permutes_that_compose_to_a_transpose(fused):
    def attention(q, k, v):
        return (q @ k.permute(0, 3, 1, 2).permute(0, 2, 3, 1).permute(0, 1, 3, 2)).softmax(-1) @ v

    fused(attention, *qkv()).fused().equals_fp64()


def test_a_permute_that_moves_the_batch(fused):  # pytorch#195320: taken for a transpose
    result = fused(lambda q, k, v: (q @ k.permute(0, 2, 3, 1) * 0.5).softmax(-1) @ v, *tensors(8, 8, 8, 8))
    result.equals_fp64()


def test_einsum_whose_scores_are_transposed(fused):
    """The roles of q and k change places: another attention, whose queries are k's rows."""

    def attention(q, k, v):
        return torch.einsum("bhid,bhjd->bhji", q, k).softmax(-1) @ v

    (k,) = tensors(2, 4, 9, 64, count=1)
    result = fused(attention, qkv()[0], k, qkv()[2]).fused().equals_fp64()
    assert result.sites[0].spec.q_len == 9


def test_an_additive_mask_is_not_dropped(fused):
    mask = torch.randn(2, 1, 1, 33)
    result = fused(lambda q, k, v, mask: (q @ k.mT * 0.25 + mask).softmax(-1) @ v, *qkv(), mask)
    result.declined(Reason.MASK).equals_fp64()
    assert "`mask`" in result.messages()[0]


def test_alpha_of_add_is_not_lost(fused):
    mask = torch.randn(33, 33)
    result = fused(lambda q, k, v, m: torch.add(q @ k.mT, m, alpha=2).softmax(-1) @ v, *qkv(), mask)
    result.declined(Reason.MASK).equals_fp64()


def test_softcap(fused):
    result = fused(lambda q, k, v: torch.tanh(q @ k.mT * 0.25).softmax(-1) @ v, *qkv())
    result.declined(Reason.SCORE_MODIFIED).equals_fp64()
    assert "tanh" in result.messages()[0]


def test_a_scale_per_head(fused):
    result = fused(lambda q, k, v, s: (q @ k.mT * s).softmax(-1) @ v, *qkv(), torch.rand(4, 1, 1) + 0.5)
    result.declined(Reason.SCALE).equals_fp64()
    assert "(4, 1, 1)" in result.messages()[0]


def test_a_one_element_scale_keeps_its_gradient(fused):  # pytorch#191203: a tensor reaches a float argument
    scale = torch.tensor(2.0)
    fused(lambda q, k, v, s: (q @ k.mT / s).softmax(-1) @ v, *qkv(), scale).fused().equals_fp64()


@pytest.mark.parametrize(
    "leak",
    [
        lambda s, w, v: (w @ v, w),
        lambda s, w, v: (w @ v, s.amax()),
        lambda s, w, v: w @ v + w @ v.flip(-2),
    ],
    ids=["weights", "scores", "second product"],
)
def test_inner_values_used_elsewhere(fused, leak):
    def attention(q, k, v):
        scores = q @ k.mT
        return leak(scores, scores.softmax(-1), v)

    fused(attention, *qkv()).declined(Reason.INNER_VALUE_USED).equals_fp64()


def test_all_reasons_are_told(fused):
    def attention(q, k, v, mask):
        weights = (torch.tanh(q @ k.mT) + mask).softmax(-1)
        return F.dropout(weights, 0.5) @ v, weights

    result = fused(attention, *qkv(), torch.randn(33, 33), device_types=("mps",))
    wanted = {Reason.SCORE_MODIFIED, Reason.MASK, Reason.DROPOUT, Reason.INNER_VALUE_USED, Reason.DEVICE}
    result.declined(*wanted)


def test_v_changed_between_the_products(fused):
    def attention(q, k, v):
        v = v.clone()
        weights = (q @ k.mT).softmax(-1)
        v.mul_(2)
        return weights @ v

    fused(attention, *qkv()).declined(Reason.MUTATION).equals_fp64()


def test_q_changed_after_its_product(fused):
    def attention(q, k, v):
        q = q * 1.0
        scores = q @ k.mT
        q.zero_()
        return scores.softmax(-1) @ v

    fused(attention, *qkv(), grad=False).declined(Reason.MUTATION).equals_fp64()


def test_a_write_into_something_fresh_does_not_count(fused):
    def attention(q, k, v):
        scores = q @ k.mT
        counter = torch.zeros(3)
        counter.add_(1)
        return scores.softmax(-1) @ v * counter.sum()

    fused(attention, *qkv()).fused().equals_fp64()


def test_dropout_in_training_and_not(fused):
    fused(lambda q, k, v: F.dropout((q @ k.mT).softmax(-1), 0.5) @ v, *qkv()).declined(Reason.DROPOUT)
    fused(lambda q, k, v: F.dropout((q @ k.mT).softmax(-1), 0.5, False) @ v, *qkv()).fused().equals_fp64()


def test_a_users_own_softmax_is_not_torchs(fused):
    def softmax(x, dim):
        return x.sigmoid()

    result = fused(lambda q, k, v: softmax(q @ k.mT, dim=-1) @ v, *qkv())
    assert not result.sites


def test_a_float64_detour_of_the_scores(fused):
    result = fused(lambda q, k, v: (q @ k.mT).double().softmax(-1).float() @ v, *qkv())
    result.declined(Reason.CAST)


def test_rounding_q_and_k_is_not_introduced(fused):
    q, k, v = qkv()
    result = fused(lambda q, k, v: (q @ k.mT).softmax(-1).half() @ v, q, k, v.half())
    result.declined(Reason.CAST)

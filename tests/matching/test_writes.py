"""Writes that the eye misses: behind copies of k and v, in lists, by dunder methods, into `out=`, into the result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from inductor_mps_attention.errors import Reason

from .harness import tensors

BATCH, HEADS, LENGTH, DIM = 2, 4, 17, 16


def qkv() -> tuple[Tensor, ...]:
    return tensors(BATCH, HEADS, LENGTH, DIM)


def grouped() -> tuple[Tensor, ...]:
    q, k, v = qkv()
    return q, k[:, :2].contiguous(), v[:, :2].contiguous()


def copied_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = k * 1, v * 1
    wide = (BATCH, 2, 2, LENGTH, DIM)
    keys, values = (t[:, :, None].expand(wide).contiguous() for t in (k, v))
    k.mul_(3.0)
    v.add_(1.0)
    merged = (BATCH, HEADS, LENGTH, DIM)
    return (q @ keys.reshape(merged).mT * 0.25).softmax(-1) @ values.reshape(merged)


def test_heads_that_were_copied_before_k_and_v_changed(fused) -> None:
    fused(copied_heads, *grouped()).declined(Reason.MUTATION)


def test_heads_that_were_copied_without_gradients(fused) -> None:
    """Read from before the copy, k would get a gradient that eager doesn't give it."""

    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        wide, merged = (BATCH, 2, 2, LENGTH, DIM), (BATCH, HEADS, LENGTH, DIM)
        keys, values = k[:, :, None], v[:, :, None]
        with torch.no_grad():
            keys, values = keys.expand(wide).contiguous(), values.expand(wide).clone()
        return (q @ keys.reshape(merged).mT * 0.25).softmax(-1) @ values.reshape(merged)

    fused(fn, *grouped()).declined(Reason.REGION)


def foreach_on_a_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.zeros(LENGTH, LENGTH).masked_fill(~torch.ones(LENGTH, LENGTH).bool().tril(), float("-inf"))
    torch._foreach_zero_([mask])
    return (q @ k.mT + mask).softmax(-1) @ v


def foreach_on_k(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k = k * 1
    scores = q.detach() @ k.detach().mT * 0.25
    torch._foreach_mul_([k], 2.0)
    return scores.softmax(-1) @ v


def dunder_on_k(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k = k.detach() * 1
    scores = q.detach() @ k.mT * 0.25
    k.__imul__(2.0)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("fn", [foreach_on_a_mask, foreach_on_k, dunder_on_k])
def test_writes_without_a_trailing_underscore_on_a_tensor(fused, fn: Callable[..., Tensor]) -> None:
    result = fused(fn, *qkv(), grad=False)
    result.equals_fp64()
    assert not any(site.fused for site in result.sites) or fn is foreach_on_a_mask


def into_a_buffer(write: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        buffer = q.new_empty(BATCH, HEADS, LENGTH, LENGTH)
        return write(q @ k.mT, buffer) @ v, buffer

    return fn


@pytest.mark.parametrize(
    "write",
    [
        lambda scores, out: torch.mul(scores, 0.25, out=out).softmax(-1),
        lambda scores, out: torch.div(scores, 4, out=out).softmax(-1),
        lambda scores, out: torch.softmax(scores * 0.25, -1, out=out),
    ],
)
def test_results_that_are_written_into_a_buffer(fused, write) -> None:
    result = fused(into_a_buffer(write), *qkv(), grad=False)
    assert [site.fused for site in result.sites] == [False]
    result.equals_fp64()


@pytest.mark.parametrize(
    "fn",
    [
        lambda q, k, v: torch.add(1.0, q @ k.mT, alpha=3).softmax(-1) @ v,
        lambda q, k, v: (1 - q @ k.mT).softmax(-1) @ v,
        lambda q, k, v: torch.sub(1.0, q @ k.mT, alpha=2).softmax(-1) @ v,
    ],
)
def test_a_number_that_the_scores_are_taken_from_or_scaled_beside(fused, fn) -> None:
    fused(fn, *qkv()).declined(Reason.SCORE_MODIFIED)


def test_alpha_of_the_subtracted_logsumexp(fused) -> None:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT
        return torch.sub(scores, scores.logsumexp(-1, keepdim=True), alpha=2).exp() @ v

    assert not any(site.fused for site in fused(fn, *qkv()).sites)


def add_one(out: Tensor) -> Tensor:
    out += 1
    return out * 2


def double(out: Tensor) -> Tensor:
    out.mul_(2)
    return out


def zero_a_row(out: Tensor) -> Tensor:
    out[:, :, 0] = 0
    return out


def relu_of_a_view(out: Tensor) -> Tensor:
    return out.transpose(1, 2).relu_()


@pytest.mark.parametrize("write", [add_one, double, zero_a_row, relu_of_a_view])
def test_the_result_may_be_written_into_while_the_backward_needs_it(fused, write) -> None:
    inputs = qkv()
    manual = fused(lambda q, k, v: write((q @ k.mT * 0.25).softmax(-1) @ v), *inputs).fused().equals_fp64()
    # Eager SDPA on the CPU keeps its own output and refuses the write, so its oracle is the other spelling.
    sdpa = fused(lambda q, k, v: write(F.scaled_dot_product_attention(q, k, v)), *inputs).fused()
    for got, expected in zip((*sdpa.outputs, *sdpa.gradients), (*manual.outputs, *manual.gradients), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    "fn",
    [
        lambda q, k, v: F.dropout(input=(q @ k.mT).softmax(-1), p=0.5, training=False) @ v,
        lambda q, k, v: (-(q @ k.mT) * 0.25).softmax(-1) @ v,
        lambda q, k, v: torch.neg(q @ k.mT).softmax(-1) @ v,
    ],
)
def test_dropout_by_keyword_and_negated_scores_are_fused(fused, fn) -> None:
    fused(fn, *qkv()).fused().equals_fp64()

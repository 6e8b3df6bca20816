"""Sizes, strides and values at the edges of what the operators take, and what must not depend on what."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inductor_mps_attention import simulator
from inductor_mps_attention.operators import flash_backward, flash_forward
from tests.support import budgets, oracle
from tests.support.inputs import Shape, make

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ALL = [True, True, True]
NAMES = ("out", "logsumexp", "dq", "dk", "dv")


def run(tensors: list[Tensor], scale: float = 0.3, upper: int | None = None) -> dict[str, Tensor]:
    """All five results of [q, k, v, grad_out], by name; fresh memory is NaN."""
    q, k, v, grad_out = tensors
    with simulator.options(poison=True):
        out, logsumexp = flash_forward(q, k, v, None, scale, None, upper)
        grads = flash_backward(grad_out, q, k, v, out, logsumexp, None, scale, None, upper, ALL)
    return dict(zip(NAMES, (out, logsumexp, *grads), strict=True))


def check(got: dict[str, Tensor], tensors: list[Tensor], scale: float = 0.3, upper: int | None = None) -> None:
    truth = oracle.attention(*tensors, scale=scale, upper=upper)
    dtype = tensors[0].dtype
    budgets.check_rows("out", got["out"], truth.out, budgets.FORWARD[dtype], truth.out_least)
    for name in ("dq", "dk", "dv"):
        least = getattr(truth, f"{name}_least")
        budgets.check_rows(name, got[name], getattr(truth, name), budgets.BACKWARD[dtype], least)


@pytest.mark.parametrize(("batch", "heads"), [(65537, 1), (1, 65537)], ids=["batch", "heads"])
def test_more_batches_or_heads_than_16_bits_count(batch: int, heads: int) -> None:
    """A grid axis of 65535 is the limit of other GPUs, and of 16-bit indices."""
    q, k, v, _ = make(Shape(batch, heads, heads, queries=1, keys=2, head_dim=1), torch.float32)
    with simulator.options(poison=True):
        out, _ = flash_forward(q, k, v, None, 0.3, None, None)
    q, k, v = (t.cpu().double() for t in (q, k, v))
    torch.testing.assert_close(out.cpu().double(), (0.3 * q @ k.mT).softmax(-1) @ v, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("queries", [3, 40])
@pytest.mark.parametrize("axis", [0, 1, 2], ids=["batch", "head", "row"])
def test_a_stride_of_zero_on_each_axis(axis: int, queries: int) -> None:
    """Rows that are one row: all keys are equal then, or all queries."""
    tensors = make(Shape(2, 2, 2, queries, 300, 16), torch.float32)
    for place in range(4):
        changed = list(tensors)
        changed[place] = tensors[place].narrow(axis, 0, 1).expand_as(tensors[place])
        assert changed[place].stride(axis) == 0
        check(run(changed), changed)


def test_any_order_of_the_axes_in_memory() -> None:
    tensors = make(Shape(2, 3, 3, 20, 33, 16), torch.float16)
    for order in ((2, 1, 0), (1, 2, 0), (2, 0, 1)):
        inverse = [order.index(axis) for axis in range(3)]
        moved = [t.permute(*order, 3).contiguous().permute(*inverse, 3) for t in tensors]
        check(run(moved), moved)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(40, 50), (2, 300)], ids=["whole", "split"])
def test_permuting_the_batch_permutes_the_bits(dtype: torch.dtype, queries: int, keys: int) -> None:
    """No row depends on where it lies, so serving in batches gives what serving alone gives."""
    tensors = make(Shape(3, 4, 2, queries, keys, 32), dtype)
    order = [2, 0, 1]
    straight, permuted = run(tensors, upper=keys - queries), run([t[order] for t in tensors], upper=keys - queries)
    alone = run([t[1:2] for t in tensors], upper=keys - queries)
    for name in NAMES:
        assert torch.equal(straight[name][order], permuted[name]), name
        if queries == 40:  # how keys are split follows the batch
            assert torch.equal(straight[name][1:2], alone[name]), name


@pytest.mark.parametrize("queries", [5, 33])
@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_a_bad_16_bit_value_spreads_as_in_float64(where: str, value: float, queries: int) -> None:
    tensors = make(Shape(1, 2, 1, queries, 300, 32), torch.float16)
    tensors["qkv".index(where)][0, 0, 2, 3] = value
    truth = oracle.attention(*tensors, scale=0.3)
    got = run(tensors)
    for name in ("out", "logsumexp"):
        assert torch.equal(got[name].cpu().isfinite(), getattr(truth, name).isfinite()), name


@pytest.mark.parametrize("queries", [4, 64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_nearly_one_hot_rows_are_no_less_exact_than_eager(dtype: torch.dtype, queries: int) -> None:
    """Scores of +-40: rows are measured by the length of their error, and by eager's.

    Weights underflow in float16, so a key that hardly anybody sees loses its gradient, as in eager; and elements of dk
    reach hundreds, where one rounding of out, which delta passes on, is some tenths.
    """
    tensors = make(Shape(1, 2, 2, queries, 256, 192), dtype, seed=3)
    truth = oracle.attention(*tensors, scale=1.0)
    got = run(tensors, scale=1.0)
    q, k, v, grad_out = (t.cpu() for t in tensors)
    q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
    out = (q @ k.mT).softmax(-1) @ v
    out.backward(grad_out)
    for name, eager in {"out": out, "dq": q.grad, "dk": k.grad, "dv": v.grad}.items():
        expected = getattr(truth, name)
        budget = (budgets.FORWARD if name == "out" else budgets.BACKWARD)[dtype]
        budgets.check(name, got[name], expected, min(budget, budgets.relative_error(eager, expected)))
        assert worst_row(got[name], expected) <= worst_row(eager, expected), name


def worst_row(got: Tensor, expected: Tensor) -> float:
    """The length of the largest error of a row."""
    return (got.detach().cpu().double() - expected).norm(dim=-1).max().item()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("queries", [3, 40])
def test_equal_keys_of_huge_scores_give_the_mean(dtype: torch.dtype, queries: int) -> None:
    q, k, v, _ = make(Shape(1, 2, 2, queries, 300, 32), dtype)
    out, _ = flash_forward(q, torch.full_like(k, 60.0), v, None, 5.0, None, None)
    expected = v.cpu().double().mean(2, keepdim=True).expand_as(out)
    budgets.check("out", out, expected, budgets.FORWARD[dtype], least=v.cpu().double().norm().item() / 300**0.5)

"""The Metal kernels, run from their text, against float64: every dtype, head dim, raggedness, band and memory order."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from inductor_mps_attention import simulator
from inductor_mps_attention.operators import flash_backward, flash_forward
from tests.support import budgets, oracle
from tests.support.inputs import LAYOUTS, Shape, make

LENGTHS = (1, 7, 33, 64, 100, 257)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ALL = [True, True, True]


def run(tensors: list[Tensor], scale: float, lower: int | None, upper: int | None) -> tuple[Tensor, ...]:
    """out, logsumexp, dq, dk, dv on the simulated device, whose fresh memory is NaN: an unwritten element fails."""
    q, k, v, grad_out = tensors
    with simulator.options(poison=True):
        out, logsumexp = flash_forward(q, k, v, None, scale, lower, upper)
        grads = flash_backward(grad_out, q, k, v, out, logsumexp, None, scale, lower, upper, ALL)
    return out, logsumexp, *grads


def check(tensors: list[Tensor], scale: float, lower: int | None, upper: int | None, where: str = "") -> None:
    """All five results within the design's budgets."""
    dtype = tensors[0].dtype
    truth = oracle.attention(*tensors, scale=scale, lower=lower, upper=upper)
    out, logsumexp, dq, dk, dv = run(tensors, scale, lower, upper)
    budgets.check_rows(f"out {where}", out, truth.out, budgets.forward(dtype, truth.largest_score), truth.out_least)
    seen = torch.isfinite(truth.logsumexp)
    assert torch.equal(torch.isneginf(logsumexp.cpu()), ~seen), f"logsumexp of empty rows {where}"
    budgets.check(f"logsumexp {where}", logsumexp.cpu()[seen], truth.logsumexp[seen], budgets.FORWARD[torch.float32])
    budget = budgets.BACKWARD[dtype]
    budgets.check_rows(f"dq {where}", dq, truth.dq, budget, truth.dq_least)
    budgets.check_rows(f"dk {where}", dk, truth.dk, budget, truth.dk_least)
    budgets.check_rows(f"dv {where}", dv, truth.dv, budget, truth.dv_least)


@pytest.mark.parametrize("upper", [None, 0], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [8, 32, 64, 80, 128])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_length_that_leaves_a_ragged_tile(dtype: torch.dtype, head_dim: int, upper: int | None) -> None:
    for turn, (queries, keys) in enumerate(itertools.product(LENGTHS, LENGTHS)):
        # Each pair of lengths meets both memory orders: one with the full band, the other with the causal one.
        layout = ("contiguous", "transposed")[(turn + (upper is None)) % 2]
        shape = Shape(heads=2, queries=queries, keys=keys, head_dim=head_dim)
        tensors = make(shape, dtype, layout=layout, seed=queries * 1000 + keys)
        check(tensors, 1 / math.sqrt(head_dim), None, upper, f"Sq={queries} Sk={keys} {layout}")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_memory_order(dtype: torch.dtype, layout: str) -> None:
    shape = Shape(batch=2, heads=4, kv_heads=2, queries=45, keys=70, head_dim=32)
    check(make(shape, dtype, layout=layout), 0.2, None, None)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (4, 1), (3, 3)])
@pytest.mark.parametrize("upper", [None, 0])
def test_grouped_heads_sum_their_gradients(heads: int, kv_heads: int, upper: int | None) -> None:
    shape = Shape(batch=2, heads=heads, kv_heads=kv_heads, queries=50, keys=41, head_dim=64)
    check(make(shape, torch.float32), 0.125, None, upper)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(None, 25), (None, -20), (-7, 0), (-3, 3), (5, None), (-200, 200), (40, 60)],
)
def test_bands(lower: int | None, upper: int | None) -> None:
    """Bottom-right causal, windows, and bands that leave rows without a key at either end."""
    check(make(Shape(queries=70, keys=95, head_dim=32), torch.float32), 0.2, lower, upper)
    check(make(Shape(queries=95, keys=33, head_dim=32), torch.float32), 0.2, lower, upper)


@pytest.mark.parametrize("scale", [0.0, -0.3, 1.0, 5.0])
def test_scales(scale: float) -> None:
    check(make(Shape(queries=40, keys=50, head_dim=32), torch.float32), scale, None, 0)


def test_a_last_dim_that_is_not_dense_is_copied_and_its_gradient_is_dense() -> None:
    tensors = [t.mT.contiguous().mT for t in make(Shape(queries=20, keys=20, head_dim=32), torch.float32)]
    check(tensors, 0.2, None, None)
    _, _, dq, _, _ = run(tensors, 0.2, None, None)
    assert dq.stride(-1) == 1


@pytest.mark.parametrize("sizes", [(0, 2, 5, 5), (1, 0, 5, 5), (1, 2, 0, 5), (1, 2, 5, 0)])
def test_zero_sizes(sizes: tuple[int, int, int, int]) -> None:
    """Nothing is launched on nothing; queries without any key give 0 and -inf, keys without any query gradient 0."""
    batch, heads, queries, keys = sizes
    tensors = make(Shape(batch, heads, heads, queries, keys, 32), torch.float32)
    out, logsumexp, dq, dk, dv = run(tensors, 0.2, None, None)
    for result in (out, dq, dk, dv):
        assert torch.equal(result.cpu(), torch.zeros_like(result.cpu()))
    assert torch.isneginf(logsumexp.cpu()).all()


def test_zero_grad_out_gives_exact_zeros() -> None:
    q, k, v, grad_out = make(Shape(), torch.float16)
    for result in run([q, k, v, torch.zeros_like(grad_out)], 0.2, None, 0)[2:]:
        assert not result.any()


def test_scores_beyond_half_range_stay_finite() -> None:
    """q . k reaches 600000, where float16 ends at 65504: scores are float32."""
    q, k, v, grad_out = make(Shape(queries=40, keys=40, head_dim=64), torch.float16)
    check([q * 100, k * 100, v, grad_out], 1e-4, None, None)


def test_equal_rows_give_the_mean() -> None:
    q, k, v, _ = make(Shape(queries=40, keys=50, head_dim=32), torch.float32)
    out, _ = flash_forward(q, torch.ones_like(k), v, None, 0.2, None, None)
    torch.testing.assert_close(out.cpu(), v.cpu().mean(2, keepdim=True).expand_as(out))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_a_bad_value_spreads_as_in_eager_and_no_further(where: str, value: float) -> None:
    """max() must not swallow a NaN, and a masked key must not spread one."""
    tensors = make(Shape(heads=1, kv_heads=1, queries=40, keys=40, head_dim=32), torch.float32)
    tensors["qkv".index(where)][0, 0, 21, 3] = value
    q, k, v, _ = tensors
    out, _ = flash_forward(q, k, v, None, 0.2, None, 0)
    scores = (q.cpu() @ k.cpu().mT * 0.2).masked_fill(~torch.ones(40, 40, dtype=torch.bool).tril(), -torch.inf)
    ours, eager = out.cpu(), scores.softmax(-1) @ v.cpu()
    assert not (eager.isfinite() & ~ours.isfinite()).any(), "finite in eager, not finite here"
    # Rows that see the value show it; eager shows some that don't as well, by 0 * inf.
    assert torch.equal(ours[:, :, 21:].isfinite(), eager[:, :, 21:].isfinite())
    both = eager.isfinite()
    torch.testing.assert_close(ours[both], eager[both], rtol=1e-5, atol=1e-6)


def test_logits_in_the_thousands_are_as_exact_as_eager() -> None:
    """exp() of a score of 2000 keeps an error of 2000 roundings, here as in eager."""
    q, k, v, grad_out = make(Shape(queries=40, keys=50, head_dim=64), torch.float32)
    truth = oracle.attention(q, k, v, grad_out, scale=50.0)
    eager = (q.cpu() @ k.cpu().mT * 50.0).softmax(-1) @ v.cpu()
    allowed = 1.5 * budgets.relative_error(eager, truth.out)
    budgets.check("out", run([q, k, v, grad_out], 50.0, None, None)[0], truth.out, allowed)


def test_two_runs_are_bitwise_equal() -> None:
    tensors = make(Shape(queries=100, keys=100), torch.bfloat16)
    for first, second in zip(run(tensors, 0.125, None, 0), run(tensors, 0.125, None, 0), strict=True):
        assert torch.equal(first, second)

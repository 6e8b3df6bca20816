"""The four kernels, run from their text: values against float64, and what no value shows.

Ragged lengths have at least two tiles each way. The grid over all shapes runs through the operators.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from inductor_mps_attention.codegen import Problem, Role, render
from torch import Tensor

from inductor_mps_attention.simulator import CheckError
from tests.support import budgets, inputs, oracle

from .launching import Band, launch, run
from .plans import made
from .sparse import BATCHES_FAR, HEADS_FAR, ROWS_FAR, far_apart

CAUSAL = Band(upper=0)
GRADIENTS = {"grad_q": "dq", "grad_k": "dk", "grad_v": "dv"}


def attention_inputs(
    shape: inputs.Shape, dtype: torch.dtype, layout: str = "contiguous", seed: int = 0
) -> list[Tensor]:
    return inputs.make(shape, dtype, layout=layout, device="cpu", seed=seed)


def compare(got: dict[str, Tensor], tensors: list[Tensor], scale: float, band: Band) -> None:
    expected = oracle.attention(*tensors, scale=scale, lower=band.lower, upper=band.upper)
    dtype = tensors[0].dtype
    budgets.check("out", got["out"], expected.out, budgets.FORWARD[dtype])
    empty = expected.logsumexp == -torch.inf
    assert torch.equal(got["logsumexp"] == -torch.inf, empty)
    torch.testing.assert_close(got["logsumexp"][~empty].double(), expected.logsumexp[~empty], rtol=1e-6, atol=5e-6)
    for name, of_oracle in GRADIENTS.items():
        budgets.check(name, got[name], getattr(expected, of_oracle), budgets.BACKWARD[dtype])


CASES = {
    "float32, full": (torch.float32, inputs.Shape(queries=40, keys=57, head_dim=64), Band(), "contiguous", False),
    "float16, causal, grouped": (
        torch.float16,
        inputs.Shape(2, 4, 2, 70, 70, 64),
        CAUSAL,
        "transposed",
        True,
    ),
    "bfloat16, bottom-right, one key head": (
        torch.bfloat16,
        inputs.Shape(1, 4, 1, 33, 70, 80),
        Band(upper=70 - 33),
        "packed",
        False,
    ),
    "float32, window, empty rows": (
        torch.float32,
        inputs.Shape(queries=90, keys=41, head_dim=128),
        Band(-12, -3),
        "contiguous",
        True,
    ),
    "float16, lower bound, v narrower": (
        torch.float16,
        inputs.Shape(queries=41, keys=75, head_dim=96, v_head_dim=32),
        Band(lower=3),
        "offset",
        False,
    ),
    "bfloat16, causal, v wider": (
        torch.bfloat16,
        inputs.Shape(queries=41, keys=41, head_dim=32, v_head_dim=128),
        CAUSAL,
        "contiguous",
        True,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_float64_and_nothing_races(case: str):
    dtype, shape, band, layout, aligned = CASES[case]
    tensors = attention_inputs(shape, dtype, layout)
    scale = shape.head_dim**-0.5
    compare(run(tensors, scale=scale, band=band, aligned=aligned, check="full"), tensors, scale, band)


@pytest.mark.parametrize("side", ["lower", "upper", "both"])
def test_every_alignment_of_the_edges_of_the_band(side: str):
    """One key too few is skipped only if an edge falls on the first or last row of a tile."""
    tensors = attention_inputs(inputs.Shape(1, 2, 1, 75, 83, 8), torch.float32)
    for bound in range(-7, 9):  # tiles are 16 rows here
        bands = {"lower": Band(lower=bound), "upper": Band(upper=bound), "both": Band(bound, bound + 5)}
        compare(run(tensors, scale=0.4, band=bands[side]), tensors, 0.4, bands[side])


@pytest.mark.parametrize("scale", [0.0, -0.25, 3.0])
def test_any_finite_scale(scale: float):  # a running maximum taken before scaling is wrong for negative ones
    tensors = attention_inputs(inputs.Shape(queries=40, keys=57, head_dim=32), torch.float32)
    got = run(tensors, scale=scale, band=CAUSAL)
    compare(got, tensors, scale, CAUSAL)
    if scale == 0:
        assert not got["grad_q"].any()
        assert not got["grad_k"].any()


def test_scores_beyond_half_precision_stay_finite():  # pytorch#119131: fp16 products over 65504
    q, k, v, grad_out = attention_inputs(inputs.Shape(queries=40, keys=57, head_dim=32), torch.float16)
    tensors = [q * 200, k * 200, v, grad_out]
    got = run(tensors, scale=0.2, band=CAUSAL)
    expected = oracle.attention(*tensors, scale=0.2, upper=0)
    budgets.check("out", got["out"], expected.out, budgets.FORWARD[torch.float16])
    assert all(got[name].isfinite().all() for name in GRADIENTS)


def test_equal_keys_give_the_mean():
    q, k, v, grad_out = attention_inputs(inputs.Shape(queries=40, keys=57, head_dim=32), torch.float32)
    tensors = [q, torch.full_like(k, -30.0), v, grad_out]
    got = run(tensors, scale=1.0, band=CAUSAL)
    mean = v.double().cumsum(2) / torch.arange(1, 58)[:, None]
    budgets.check("out", got["out"], mean[:, :, :40], budgets.FORWARD[torch.float32])


def test_zero_gradients_give_exact_zeros():
    q, k, v, grad_out = attention_inputs(inputs.Shape(queries=40, keys=57, head_dim=32), torch.float32)
    got = run([q, k, v, torch.zeros_like(grad_out)], scale=0.2, band=CAUSAL)
    assert not any(got[name].any() for name in GRADIENTS)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("which", [0, 1, 2, 3], ids=["q", "k", "v", "grad_out"])
def test_nan_and_infinity_appear_only_where_float64_has_them(which: int, value: float):
    """pytorch#188147: max() swallowed a NaN; a product with a mask spread it to all rows."""
    tensors = attention_inputs(inputs.Shape(queries=40, keys=40, head_dim=32), torch.float32)
    tensors[which][0, 1, 17, 3] = value
    for band in (Band(), CAUSAL):
        got = run(tensors, scale=0.2, band=band)
        expected = oracle.attention(*tensors, scale=0.2, lower=band.lower, upper=band.upper)
        for name, of_oracle in {"out": "out", "logsumexp": "logsumexp", **GRADIENTS}.items():
            bad, allowed = ~got[name].isfinite(), ~getattr(expected, of_oracle).isfinite()
            assert not (bad & ~allowed).any(), f"{name}, {band}: a new NaN or infinity"
            if band == Band():  # tiles outside a band are skipped, and with them 0 * NaN
                assert torch.equal(bad, allowed), f"{name}: a NaN or infinity was swallowed"


def test_rows_past_the_end_do_not_meet_an_infinite_key():
    """A tile's rows past the last query are zeros, and 0 * inf is NaN: the key's own gradients must not see them."""
    q, k, v, grad_out = attention_inputs(inputs.Shape(queries=40, keys=40, head_dim=32), torch.float32)
    q[..., 3] = -q[..., 3].abs()
    k[0, 1, 17, 3] = torch.inf  # its score is -inf for every query: weight 0
    got = run([q, k, v, grad_out], scale=0.2)
    expected = oracle.attention(q, k, v, grad_out, scale=0.2)
    for name, of_oracle in (("out", "out"), ("grad_k", "dk"), ("grad_v", "dv")):
        budgets.check(name, got[name], getattr(expected, of_oracle), budgets.BACKWARD[torch.float32])


def test_a_row_whose_scores_are_all_minus_infinity_is_zero():
    """As in scaled_dot_product_attention, whose softmax calls such a row empty."""
    q, k, v, grad_out = attention_inputs(inputs.Shape(queries=40, keys=40, head_dim=32), torch.float32)
    k = k.abs()
    q[0, 1, 17, 3] = -torch.inf
    got = run([q, k, v, grad_out], scale=0.2)
    for name in ("out", "grad_q"):
        assert not got[name][0, 1, 17].any(), name
    assert got["logsumexp"][0, 1, 17] == -torch.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_future_key_changes_no_bit_of_an_earlier_row(dtype: torch.dtype):  # pytorch#195910
    q, k, v, grad_out = attention_inputs(inputs.Shape(queries=50, keys=50, head_dim=32), dtype)
    before = run([q, k, v, grad_out], scale=0.2, band=CAUSAL)
    changed_k, changed_v = k.clone(), v.clone()
    changed_k[:, :, 21:] += 9
    changed_v[:, :, 21:] -= 9
    after = run([q, changed_k, changed_v, grad_out], scale=0.2, band=CAUSAL)
    for name in ("out", "logsumexp", "grad_q"):
        assert torch.equal(before[name][:, :, :21], after[name][:, :, :21]), name


def test_keys_shared_by_all_batches_and_heads():
    tensors = attention_inputs(inputs.Shape(2, 4, 4, 33, 40, 32), torch.float32, "broadcast")
    compare(run(tensors, scale=0.2), tensors, 0.2, Band())


def test_the_order_of_threads_changes_no_bit():
    tensors = attention_inputs(inputs.Shape(1, 4, 2, 70, 70, 32), torch.float16)
    first = run(tensors, scale=0.2, band=CAUSAL)
    for order in ("reverse", "random:7"):
        other = run(tensors, scale=0.2, band=CAUSAL, order=order)
        for name in ("out", "logsumexp", *GRADIENTS):
            assert torch.equal(first[name], other[name]), f"{name}, {order}"


def test_offsets_beyond_two_to_the_31_elements(tmp_path: Path):  # pytorch#179592: 32-bit offsets wrap
    """Batches, heads or rows of an input lie far apart in a sparse file."""
    q, k, v, grad_out = attention_inputs(inputs.Shape(2, 2, 2, 9, 20, 8), torch.float16)
    near = {"q": q, "k": k, "v": v, "grad_out": grad_out}
    for name, strides in (("q", ROWS_FAR), ("k", HEADS_FAR), ("v", BATCHES_FAR), ("grad_out", ROWS_FAR)):
        tensors = near | {name: far_apart(tmp_path, name, near[name], strides)}
        compare(run(list(tensors.values()), scale=0.3, band=CAUSAL), [q, k, v, grad_out], 0.3, CAUSAL)


def test_outputs_beyond_two_to_the_31_elements(tmp_path: Path):
    tensors = attention_inputs(inputs.Shape(2, 2, 2, 9, 20, 8), torch.float16)
    ran = run(tensors, scale=0.3, band=CAUSAL)
    problem = Problem("float16", 8, 8, has_upper=True)
    for name, role, strides in (
        ("out", Role.FORWARD, HEADS_FAR),
        ("grad_q", Role.BACKWARD_DQ, ROWS_FAR),
        ("grad_k", Role.BACKWARD_DKV, BATCHES_FAR),
        ("grad_v", Role.BACKWARD_DKV, ROWS_FAR),
    ):
        far = far_apart(tmp_path, name, torch.full_like(ran[name], torch.nan), strides)
        plan = made(problem, role)
        launch(plan, ran | {name: far}, 0.3, CAUSAL, render(plan).text)
        assert torch.equal(far, ran[name]), name


BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@pytest.mark.parametrize("role", [Role.FORWARD, Role.BACKWARD_DQ, Role.BACKWARD_DKV])
@pytest.mark.parametrize("place", [0, 1])
def test_a_missing_barrier_is_reported(role: Role, place: int):
    tensors = attention_inputs(inputs.Shape(1, 1, 1, 100, 100, 32), torch.float16)

    def without_one(edited: Role, text: str) -> str:
        if edited is not role:
            return text
        start = [found.start() for found in re.finditer(re.escape(BARRIER), text)][place]
        return text[:start] + text[start + len(BARRIER) :]

    with pytest.raises(CheckError):
        run(tensors, scale=0.2, band=CAUSAL, check="full", edit=without_one)


@pytest.mark.parametrize("role", [Role.FORWARD, Role.BACKWARD_DQ, Role.BACKWARD_DKV])
def test_tiles_outside_the_band_cost_no_product(role: Role):
    """Causal work is about half: at 512 rows at most 0.58 of it, edges included."""
    tensors = attention_inputs(inputs.Shape(1, 1, 1, 512, 512, 32), torch.float16)
    ran = run(tensors, scale=0.2)
    products = {}
    for band in (Band(), CAUSAL):
        plan = made(Problem("float16", 32, 32, has_upper=band.upper is not None), role)
        counters = launch(plan, ran, 0.2, band, render(plan).text)
        products[band] = counters["products"]
    rows = 512 // 8
    per_pair = 32 // 8 * {Role.FORWARD: 2, Role.BACKWARD_DQ: 3, Role.BACKWARD_DKV: 4}[role]
    assert products[Band()] == rows * rows * per_pair
    assert products[CAUSAL] <= 0.58 * products[Band()]

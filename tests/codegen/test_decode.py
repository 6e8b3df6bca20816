"""Few queries, many keys: parts of the keys and their merge, run from the text, against float64 and the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from inductor_mps_attention.codegen import Problem, Role, Split, launch_grid, render
from inductor_mps_attention.codegen.decode import split_of
from torch import Tensor

from tests.support import budgets, inputs, oracle

from .launching import FULL, Band, decode, launch, problem_of
from .plans import made
from .sparse import BATCHES_FAR, HEADS_FAR, ROWS_FAR, far_apart

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SPLIT = Split(128, 1)


def few_queries(shape: inputs.Shape, dtype: torch.dtype, layout: str = "contiguous") -> list[Tensor]:
    return inputs.make(shape, dtype, layout=layout, device="cpu", seed=1)


def compare(
    got: dict[str, Tensor], tensors: list[Tensor], scale: float, band: Band, mask: Tensor | None = None
) -> None:
    expected = oracle.attention(*tensors, scale=scale, lower=band.lower, upper=band.upper, key_mask=mask)
    dtype = tensors[0].dtype
    budgets.check_rows(
        "out", got["out"], expected.out, budgets.forward(dtype, expected.largest_score), expected.out_least
    )
    empty = expected.logsumexp == -torch.inf
    assert torch.equal(got["logsumexp"] == -torch.inf, empty)
    torch.testing.assert_close(got["logsumexp"][~empty].double(), expected.logsumexp[~empty], rtol=1e-6, atol=5e-6)


def tensors_of_forward(tensors: list[Tensor], scale: float, band: Band) -> dict[str, Tensor]:
    """By one kernel over all keys."""
    q, k, v, grad_out = tensors
    written = {"out": torch.full_like(grad_out, torch.nan), "logsumexp": torch.full(q.shape[:-1], torch.nan)}
    plan = made(problem_of(tensors, band), Role.FORWARD)
    launch(plan, {"q": q, "k": k, "v": v} | written, scale, band, render(plan).text)
    return written


CASES = {
    "one query a head": (torch.float16, inputs.Shape(2, 2, 2, 1, 300, 64), FULL, "transposed", True, Split(128, 1)),
    "grouped, two fragments, ragged": (
        torch.float32,
        inputs.Shape(1, 6, 2, 3, 261, 33, 65),
        FULL,
        "offset",
        False,
        Split(128, 2),
    ),
    "window that leaves parts unseen": (
        torch.bfloat16,
        inputs.Shape(1, 4, 1, 5, 515, 128),
        Band(200, 260),
        "packed",
        True,
        Split(128, 1),
    ),
    "bottom-right, several blocks of rows": (
        torch.float16,
        inputs.Shape(2, 6, 1, 7, 140, 20, 32),
        Band(upper=133),
        "contiguous",
        False,
        Split(128, 1),
    ),
    "rows without a key": (torch.float32, inputs.Shape(1, 2, 2, 8, 300, 8), Band(upper=-4), "broadcast", True, SPLIT),
    "queries read again, negative scale": (
        torch.float16,
        inputs.Shape(1, 4, 2, 3, 150, 250),
        Band(upper=147),
        "offset",
        False,
        Split(128, 2),
    ),
    "the largest head dim": (
        torch.float32,
        inputs.Shape(1, 2, 1, 2, 150, 256),
        Band(lower=3),
        "contiguous",
        True,
        SPLIT,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_parts_and_their_merge_are_the_attention_and_nothing_races(case: str):
    dtype, shape, band, layout, aligned, split = CASES[case]
    tensors = few_queries(shape, dtype, layout)
    scale = -0.1 if "negative" in case else 0.2
    got = decode(tensors, scale=scale, split=split, band=band, aligned=aligned, check="full")
    compare(got, tensors, scale, band)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_masked_keys(share: float):
    """Parts without a live key leave nothing that the merge may read."""
    tensors = few_queries(inputs.Shape(2, 4, 2, 2, 520, 32), torch.float32)
    mask = torch.rand(2, 520, generator=torch.Generator().manual_seed(3)) < share
    mask[0, :300] = False
    compare(decode(tensors, scale=0.2, split=SPLIT, key_mask=mask, check="full"), tensors, 0.2, FULL, mask)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_split_gives_what_the_whole_gives(dtype: torch.dtype):
    """To float32's rounding before the output's own; for one part the maximum is even the same number."""
    tensors = few_queries(inputs.Shape(1, 4, 2, 4, 700, 40), dtype)
    whole = tensors_of_forward(tensors, 0.3, Band(upper=500))
    for keys in (128, 256, 1024):
        parts = decode(tensors, scale=0.3, split=Split(keys, 1), band=Band(upper=500))
        budgets.check("out", parts["out"], whole["out"], budgets.FORWARD[dtype])
        torch.testing.assert_close(parts["logsumexp"], whole["logsumexp"], rtol=1e-6, atol=2e-6)


def test_the_split_is_a_hint_and_every_length_is_right():
    """A graph compiled for one query and many keys meets many queries, few keys and none."""
    for queries, keys in ((1, 5), (3, 0), (40, 129), (9, 256), (64, 300)):
        tensors = few_queries(inputs.Shape(1, 3, 1, queries, keys, 16), torch.float32)
        compare(
            decode(tensors, scale=0.2, split=SPLIT, band=Band(upper=keys - queries)),
            tensors,
            0.2,
            Band(upper=keys - queries),
        )


def test_the_order_of_threads_changes_no_bit():
    tensors = few_queries(inputs.Shape(1, 4, 2, 3, 400, 64), torch.float16)
    first = decode(tensors, scale=0.2, split=SPLIT)
    for order in ("reverse", "random:7"):
        other = decode(tensors, scale=0.2, split=SPLIT, order=order)
        for name in ("out", "logsumexp"):
            assert torch.equal(first[name], other[name]), f"{name}, {order}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_future_key_changes_no_bit_of_an_earlier_row(dtype: torch.dtype):
    q, k, v, grad_out = few_queries(inputs.Shape(1, 4, 1, 8, 300, 32), dtype)
    band = Band(upper=292)
    before = decode([q, k, v, grad_out], scale=0.2, split=SPLIT, band=band)
    k[:, :, 297:] += 9
    v[:, :, 297:] -= 9
    after = decode([q, k, v, grad_out], scale=0.2, split=SPLIT, band=band)
    for name in ("out", "logsumexp"):
        assert torch.equal(before[name][:, :, :5], after[name][:, :, :5]), name
        assert not torch.equal(before[name][:, :, 5:], after[name][:, :, 5:]), name


@pytest.mark.parametrize("scale", [0.0, -0.25, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_any_finite_scale(dtype: torch.dtype, scale: float):
    tensors = few_queries(inputs.Shape(1, 4, 2, 3, 300, 32), dtype)
    compare(decode(tensors, scale=scale, split=SPLIT), tensors, scale, FULL)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["q", "k", "v"])
def test_nan_and_infinity_appear_only_where_float64_has_them(which: int, value: float):
    tensors = few_queries(inputs.Shape(1, 2, 2, 3, 300, 32), torch.float32)
    tensors[which][0, 1, 2, 3] = value
    got = decode(tensors, scale=0.2, split=SPLIT)
    expected = oracle.attention(*tensors, scale=0.2)
    for name in ("out", "logsumexp"):
        assert torch.equal(got[name].isfinite(), getattr(expected, name).isfinite()), name


def test_keys_and_outputs_beyond_two_to_the_31_elements(tmp_path: Path):
    near = few_queries(inputs.Shape(2, 2, 2, 2, 20, 8), torch.float16)
    whole = decode(near, scale=0.3, split=SPLIT)
    for strides in (BATCHES_FAR, HEADS_FAR, ROWS_FAR):
        far = [far_apart(tmp_path, name, each, strides) for name, each in zip("qkv", near[:3], strict=True)]
        assert torch.equal(decode([*far, near[3]], scale=0.3, split=SPLIT)["out"], whole["out"]), strides
        out = far_apart(tmp_path, "out", torch.full_like(whole["out"], torch.nan), strides)
        plan = made(problem_of(near, FULL, split=SPLIT), Role.DECODE_MERGE)
        launch(plan, whole | {"out": out}, 0.3, FULL, render(plan).text)
        assert torch.equal(out, whole["out"]), strides


def test_a_group_reads_its_keys_and_values_once():
    """Eight query heads to a key head: an attention a head would read eight times as much."""
    tensors = few_queries(inputs.Shape(1, 16, 2, 1, 512, 64), torch.float16)
    q, k, v, _ = tensors
    ran = decode(tensors, scale=0.2, split=SPLIT, aligned=True)
    plan = made(Problem("float16", 64, 64, aligned=True, split=SPLIT), Role.DECODE)
    read = launch(plan, ran, 0.2, FULL, render(plan).text)["device_bytes_read"]
    queries = q.nbytes * 4 * 4  # each of four simdgroups, in each of four parts
    assert read <= 1.02 * (k.nbytes + v.nbytes + queries)


def test_keys_are_split_for_few_queries_against_many_keys_only():
    assert split_of(1, 32, 8, 9, 4096) is None
    assert split_of(1, 32, 8, 1, 255) is None
    for nothing in ((0, 8, 8, 1, 4096), (1, 0, 0, 1, 4096), (1, 8, 8, 0, 4096)):
        assert split_of(*nothing) is None
    assert split_of(1, 32, 8, 1, 4096) == Split(128, 1)
    assert split_of(1, 32, 8, 4, 4096) == Split(128, 2)  # 16 rows a key head


def test_parts_are_as_large_as_leaves_work_for_all_cores():
    assert [split_of(batch, 32, 8, 1, 4096).keys for batch in (1, 2, 4, 8, 64)] == [128, 256, 512, 1024, 1024]


def test_a_grid_covers_every_row_of_every_group_and_every_key():
    plan = made(Problem("float16", 64, 64, split=Split(256, 2)), Role.DECODE)
    merge = made(Problem("float16", 64, 64, split=Split(256, 2)), Role.DECODE_MERGE)
    # 12 query heads to 3 key heads, 5 queries: 20 rows a key head, in blocks of 16.
    assert launch_grid(plan, 2, 12, 3, 5, 1000) == ((3 * 2 * plan.threads, 4, 2), (plan.threads, 1, 1))
    assert launch_grid(merge, 2, 12, 3, 5, 1000) == ((15 * merge.threads, 1, 2), (merge.threads, 1, 1))
    assert 0 in launch_grid(plan, 2, 12, 3, 5, 0)[0]
    assert 0 not in launch_grid(merge, 2, 12, 3, 5, 0)[0]


def test_few_rows_keep_within_the_registers():
    for dtype in ("float32", "float16", "bfloat16"):
        for head_dim in (32, 64, 80, 96, 128, 192, 256):
            plan = made(Problem(dtype, head_dim, head_dim, aligned=True, split=Split(128, 2)), Role.DECODE)
            assert plan.register_bytes <= 340, plan.entry
            assert not (plan.tiling.reread and head_dim <= 128), plan.entry

"""A group of query heads in parts, each with its sums of grad_k and grad_v, and the kernel that adds the parts up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from inductor_mps_attention.codegen import Problem, Rejected, Role, Sizes, backward_steps, hinted, launch_grid, render
from inductor_mps_attention.codegen.grouping import group_heads_of
from torch import Tensor

from tests.support import budgets, inputs, oracle

from .launching import FULL, Band, launch, run
from .plans import made
from .sparse import BATCHES_FAR, HEADS_FAR, ROWS_FAR, far_apart

DKV, SUM = Role.BACKWARD_DKV, Role.BACKWARD_SUM
GRADS = ("grad_k", "grad_v")


def compare(
    got: dict[str, Tensor], tensors: list[Tensor], scale: float, band: Band, mask: Tensor | None = None
) -> None:
    truth = oracle.attention(*tensors, scale=scale, lower=band.lower, upper=band.upper, key_mask=mask)
    budget = budgets.BACKWARD[tensors[0].dtype]
    budgets.check_rows("grad_q", got["grad_q"], truth.dq, budget, truth.dq_least)
    budgets.check_rows("grad_k", got["grad_k"], truth.dk, budget, truth.dk_least)
    budgets.check_rows("grad_v", got["grad_v"], truth.dv, budget, truth.dv_least)


CASES = {
    "a head each": (torch.float16, inputs.Shape(2, 4, 2, 40, 70, 64), FULL, "transposed", True, 1),
    "a short last part": (torch.float32, inputs.Shape(1, 7, 1, 33, 40, 20, 36), Band(upper=7), "offset", False, 3),
    "bfloat16, window": (torch.bfloat16, inputs.Shape(1, 6, 2, 70, 100, 72), Band(-20, 9), "packed", True, 2),
    "shared keys": (torch.float32, inputs.Shape(1, 4, 1, 20, 50, 128), Band(upper=0), "broadcast", True, 2),
    "all heads in one part": (torch.float16, inputs.Shape(1, 4, 2, 20, 30, 8), FULL, "contiguous", True, 5),
    "keys that nobody sees": (torch.float32, inputs.Shape(1, 4, 2, 20, 60, 32), Band(upper=10), "contiguous", True, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_parts_and_their_sum_are_the_gradients_and_nothing_races(case: str):
    dtype, shape, band, layout, aligned, heads = CASES[case]
    tensors = inputs.make(shape, dtype, layout=layout, device="cpu", seed=2)
    got = run(tensors, scale=0.2, band=band, aligned=aligned, group_heads=heads, check="full")
    compare(got, tensors, 0.2, band)


def test_masked_keys():
    tensors = inputs.make(inputs.Shape(2, 4, 1, 30, 90, 64), torch.float32, device="cpu")
    mask = torch.rand(2, 90, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[1, :64] = False
    got = run(tensors, scale=0.2, key_mask=mask, group_heads=2, check="full")
    compare(got, tensors, 0.2, FULL, mask)
    for grad in GRADS:
        assert not got[grad][~mask[:, None].expand(2, 1, 90)].any()


def test_float32_parts_of_one_head_lose_nothing_that_the_whole_keeps():
    """The one is a sum over heads and their queries in a row, the other of heads' sums: roundings of float32 apart."""
    tensors = inputs.make(inputs.Shape(1, 8, 1, 50, 60, 64), torch.float32, device="cpu")
    whole, parts = run(tensors, scale=0.2), run(tensors, scale=0.2, group_heads=1)
    for grad in GRADS:
        budgets.check(grad, parts[grad], whole[grad].double(), 1e-6)
    assert torch.equal(whole["grad_q"], parts["grad_q"])


def test_the_order_of_threads_changes_no_bit():
    tensors = inputs.make(inputs.Shape(1, 6, 2, 40, 50, 64), torch.bfloat16, device="cpu")
    first = run(tensors, scale=0.2, group_heads=2)
    for order in ("reverse", "random:7"):
        other = run(tensors, scale=0.2, group_heads=2, order=order)
        for grad in GRADS:
            assert torch.equal(first[grad], other[grad]), f"{grad}, {order}"


def test_the_parts_are_a_hint_and_every_size_is_right():
    for queries, keys in ((1, 1), (0, 5), (200, 3)):
        tensors = inputs.make(inputs.Shape(1, 6, 2, queries, keys, 16), torch.float32, device="cpu")
        compare(run(tensors, scale=0.2, group_heads=2), tensors, 0.2, FULL)


def test_gradients_beyond_two_to_the_31_elements(tmp_path: Path):
    tensors = inputs.make(inputs.Shape(2, 4, 2, 20, 20, 8), torch.float16, device="cpu")
    near = run(tensors, scale=0.2, group_heads=1)
    plan = made(Problem("float16", 8, 8, group_heads=1), SUM)
    for strides in (BATCHES_FAR, HEADS_FAR, ROWS_FAR):
        far = {grad: far_apart(tmp_path, grad, torch.full_like(near[grad], torch.nan), strides) for grad in GRADS}
        launch(plan, near | far, 0.2, FULL, render(plan).text)
        for grad in GRADS:
            assert torch.equal(far[grad], near[grad]), f"{grad}, {strides}"


def test_groups_are_split_where_few_threadgroups_would_have_much_to_do():
    assert group_heads_of(1, 8, 2, 2048, 2048) == 1
    assert group_heads_of(1, 32, 8, 2048, 2048) == 2
    assert group_heads_of(1, 32, 8, 4096, 4096) is None  # 2048 simdgroups without it
    assert group_heads_of(1, 8, 8, 512, 512) is None  # no groups
    assert group_heads_of(8, 8, 2, 2048, 2048) is None  # the batch fills the cores
    assert group_heads_of(1, 32, 1, 2048, 2048) == 2  # sixteen parts suffice
    assert group_heads_of(1, 8, 1, 100, 2048) is None  # 800 rows are one part's
    assert group_heads_of(1, 7, 1, 1024, 2048) == 1
    for nothing in ((0, 8, 2, 9, 9), (1, 0, 0, 9, 9), (1, 8, 2, 0, 9), (1, 8, 2, 9, 0)):
        assert group_heads_of(*nothing) is None


def test_the_steps_write_parts_and_add_up_what_is_wanted():
    sizes = Sizes(1, 8, 2, 2048, 2048)
    for key_grad, value_grad in ((True, True), (True, False), (False, True)):
        wanted = (False, key_grad, value_grad)
        steps = backward_steps(hinted(Problem("float16", 64, 40), sizes), (), wanted=wanted)
        assert not isinstance(steps, Rejected)
        assert [step.plan.role for step in steps][-2:] == [DKV, SUM]
        parts = {each.name: each.shape_of(vars(sizes)) for each in steps[-2].scratch}
        expected = {"grad_k_parts": (1, 2, 4, 2048, 64), "grad_v_parts": (1, 2, 4, 2048, 40)}
        names = [f"{grad}_parts" for grad, made_here in zip(GRADS, wanted[1:], strict=True) if made_here]
        assert parts == {name: expected[name] for name in names}
        assert [buffer.name for buffer in steps[-2].plan.buffers if buffer.writable] == names
        outputs = [buffer.name for buffer in steps[-1].plan.buffers if buffer.writable]
        assert [f"{name}_parts" for name in outputs] == names


def test_a_grid_covers_every_part_and_every_key():
    problem = Problem("float16", 64, 64, group_heads=3)
    parts, total = made(problem, DKV), made(problem, SUM)
    # Three key heads of seven query heads: parts of 3, 3 and 1.
    threads, group = launch_grid(parts, 2, 21, 3, 100, 70)
    assert threads == (3 * 3 * parts.threads, -(-70 // parts.block_rows), 2)
    assert group == (parts.threads, 1, 1)
    threads, group = launch_grid(total, 2, 21, 3, 100, 70)
    assert threads == (3 * total.threads, -(-70 // 4), 2)
    assert group == (4 * 32, 1, 1)

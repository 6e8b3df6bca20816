"""Gradients that autograd joins are written into the joined tensor; whatever else the graph does with them is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.utils import run_and_get_code

from tests.support import budgets
from tests.support.output_code import attention_calls, body

BATCH, LENGTH, HEADS, HEAD_DIM = 2, 40, 2, 8
WIDTH = HEADS * HEAD_DIM
Function = Callable[[Tensor, Tensor], Tensor]


def heads(t: Tensor) -> Tensor:
    return t.view(t.shape[0], t.shape[1], -1, HEAD_DIM).transpose(1, 2)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def split(x: Tensor, w: Tensor) -> Tensor:
    return attend(*map(heads, (x @ w).split(WIDTH, 2)))


def split_in_another_order(x: Tensor, w: Tensor) -> Tensor:
    v, q, k = map(heads, (x @ w).split(WIDTH, 2))
    return attend(q, k, v)


def unbind(x: Tensor, w: Tensor) -> Tensor:
    qkv = (x @ w).view(*x.shape[:2], 3, HEADS, HEAD_DIM)
    return attend(*qkv.permute(2, 0, 3, 1, 4).unbind(0))


def indexed(x: Tensor, w: Tensor) -> Tensor:
    qkv = (x @ w).view(*x.shape[:2], 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
    return attend(qkv[0], qkv[1], qkv[2])


def sliced(x: Tensor, w: Tensor) -> Tensor:
    qkv = x @ w
    return attend(heads(qkv[..., :WIDTH]), heads(qkv[..., WIDTH : 2 * WIDTH]), heads(qkv[..., -WIDTH:]))


def chunk_of_each_head(x: Tensor, w: Tensor) -> Tensor:
    qkv = (x @ w).view(*x.shape[:2], HEADS, 3 * HEAD_DIM).transpose(1, 2)
    return attend(*qkv.chunk(3, -1))


def keys_and_values(x: Tensor, w: Tensor) -> Tensor:
    return attend(heads(x), *map(heads, (x @ w[:, WIDTH:]).chunk(2, 2)))


def grouped(x: Tensor, w: Tensor) -> Tensor:
    """Two query heads on one key head: slices of unequal widths."""
    return attend(*map(heads, (x @ w[:, : 2 * WIDTH]).split([WIDTH, HEAD_DIM, HEAD_DIM], 2)))


PACKED = (
    split,
    split_in_another_order,
    unbind,
    indexed,
    sliced,
    chunk_of_each_head,
    keys_and_values,
    grouped,
)


def slices_that_overlap(x: Tensor, w: Tensor) -> Tensor:
    qkv = x @ w
    return attend(heads(qkv[..., :WIDTH]), heads(qkv[..., HEAD_DIM : WIDTH + HEAD_DIM]), heads(qkv[..., -WIDTH:]))


def slices_that_leave_a_gap(x: Tensor, w: Tensor) -> Tensor:
    qkv = (x @ w).view(*x.shape[:2], 6, HEAD_DIM)
    return attend(*(qkv[:, :, i : i + 2].transpose(1, 2) for i in (0, 2, 3)))


def one_slice_is_used_again(x: Tensor, w: Tensor) -> Tensor:
    q, k, v = map(heads, (x @ w).split(WIDTH, 2))
    return attend(q, k, v) + v.sin()


def keys_that_are_values(x: Tensor, w: Tensor) -> Tensor:
    q, k, _ = map(heads, (x @ w).split(WIDTH, 2))
    return attend(q, k, k)


def a_fourth_slice(x: Tensor, w: Tensor) -> Tensor:
    q, k, v, gate = map(heads, (x @ torch.cat([w, w[:, :WIDTH]], 1)).split(WIDTH, 2))
    return attend(q, k, v) * gate.sigmoid()


def two_attentions_on_one_projection(x: Tensor, w: Tensor) -> Tensor:
    q, k, v = map(heads, (x @ w).split(WIDTH, 2))
    return attend(q, k, v) + attend(k, q, v)


def rotated(x: Tensor, w: Tensor) -> Tensor:
    q, k, v = map(heads, (x @ w).split(WIDTH, 2))
    return attend(q.flip(-1) * 0.5, k.roll(1, -1), v)


def cast_between(x: Tensor, w: Tensor) -> Tensor:
    q, k, v = map(heads, (x @ w).split(WIDTH, 2))
    return attend(q.half(), k.half(), v.half()).float()


UNPACKED = (
    slices_that_overlap,
    slices_that_leave_a_gap,
    one_slice_is_used_again,
    keys_that_are_values,
    a_fourth_slice,
    two_attentions_on_one_projection,
    rotated,
    cast_between,
)


def backward_code(function: Function, dynamic: bool) -> str:
    """Checks the gradients against float64, twice in one compiled function; the output code of the backward."""
    compiled = torch.compile(function, backend="mps_attention", fullgraph=True, dynamic=None if dynamic else False)
    code = ""
    for length in (LENGTH, 24) if dynamic else (LENGTH,):
        x, w = torch.randn(BATCH, length, WIDTH), torch.randn(WIDTH, 3 * WIDTH) / WIDTH**0.5
        exact = [t.double().requires_grad_() for t in (x, w)]
        expected = function(*exact)
        grad_out = torch.randn(expected.shape)
        expected.backward(grad_out.double())
        own = [t.to("mps").requires_grad_() for t in (x, w)]
        if dynamic:
            torch._dynamo.mark_dynamic(own[0], 1)
        _, codes = run_and_get_code(lambda own=own, g=grad_out: compiled(*own).backward(g.to("mps")))
        code = code or codes[-1]
        budget = budgets.BACKWARD[torch.float16 if function is cast_between else torch.float32]
        for name, got, oracle in zip("xw", own, exact, strict=True):
            budgets.check(name, got.grad, oracle.grad, budget)
    return code


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", PACKED, ids=lambda f: f.__name__)
def test_joined_gradients_are_written_side_by_side(function: Function, dynamic: bool) -> None:
    code = backward_code(function, dynamic)
    calls = {call.role: call for call in attention_calls(code)}
    written = [*calls["backward_dq"].tensors[-1:], *calls["backward_dkv"].tensors[-2:]]
    if function is keys_and_values:
        del written[0]  # q is no slice of what k and v are slices of
    assert len({tensor.buffer for tensor in written}) == 1
    kernels = [line for line in body(code).splitlines() if line.strip().startswith("generated_kernel") and "(" in line]
    # Only slices of the inputs, which some of the functions take, cost a kernel of Inductor's own.
    assert len(kernels) <= (2 if function in (keys_and_values, grouped) else 0)


@pytest.mark.parametrize("function", UNPACKED, ids=lambda f: f.__name__)
def test_joins_of_something_else_too_stay_as_they_are(function: Function) -> None:
    """The numbers are the test: a gradient that is read elsewhere, or added to, must not be packed."""
    backward_code(function, dynamic=False)


def test_breaking_the_places_shows_in_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two of the places exchanged the gradients above are wrong: the numbers would notice."""
    from inductor_mps_attention.lowering import operators

    packings = operators.packings

    def exchanged(node):
        found = packings(node)
        for packing in found:
            packing.views[0], packing.views[1] = packing.views[1], packing.views[0]
        return found

    monkeypatch.setattr(operators, "packings", exchanged)
    with pytest.raises(AssertionError):
        backward_code(split, dynamic=False)

"""Few key heads in Inductor's graph: sums of parts of a group are buffers of its own, and lengths change no text."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.utils import run_and_get_code

import inductor_mps_attention as ima
from tests.support import budgets
from tests.support.output_code import attention_calls

BACKWARD = {"backward_delta", "backward_dq", "backward_dkv"}
SPLIT = BACKWARD | {"backward_sum"}


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def given(queries: int, keys: int, heads: int = 4, kv_heads: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(queries)
    sizes = ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    return [torch.randn(2, *size, 16, generator=generator).requires_grad_() for size in sizes]


def gradients(function, tensors: list[Tensor], wanted: str = "qkv") -> dict[str, Tensor]:
    out = function(*tensors)
    grad_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    inputs = [tensor for name, tensor in zip("qkv", tensors, strict=True) if name in wanted]
    return dict(zip(wanted, torch.autograd.grad(out, inputs, grad_out), strict=True))


def check(compiled, queries: int, keys: int, wanted: str = "qkv", kv_heads: int = 1) -> set[str]:
    """The kernels that a backward launches; its gradients are right."""
    tensors = given(queries, keys, kv_heads=kv_heads)
    own = [t.detach().to("mps").requires_grad_(name in wanted) for name, t in zip("qkv", tensors, strict=True)]
    ima.reset_stats()
    got = gradients(compiled, own, wanted)
    expected = gradients(attend, [t.detach().double().requires_grad_() for t in tensors], wanted)
    for name in wanted:
        budgets.check(name, got[name], expected[name], budgets.BACKWARD[torch.float32])
    return {role for role in ima.stats()["launches"] if role.startswith("backward")}


@pytest.mark.parametrize("wanted", ["qkv", "k", "v", "kv"])
def test_parts_are_added_up_by_a_kernel_of_their_own(wanted: str) -> None:
    launched = check(torch.compile(attend, backend="mps_attention", dynamic=False), 512, 70, wanted)
    assert launched >= {"backward_dkv", "backward_sum"}


def test_one_text_serves_all_lengths() -> None:
    """The memory of the parts follows the keys, by size arithmetic of the graph."""
    compiled = torch.compile(attend, backend="mps_attention", dynamic=True)
    for queries, keys in ((520, 70), (33, 200), (600, 64), (2, 3)):
        with torch.compiler.set_stance("default" if queries == 520 else "fail_on_recompile"):
            assert check(compiled, queries, keys) == SPLIT


def test_heads_of_their_own_keys_and_short_lengths_take_one_kernel() -> None:
    compiled = torch.compile(attend, backend="mps_attention", dynamic=False)
    assert check(compiled, 512, 70, kv_heads=4) == BACKWARD
    assert check(compiled, 100, 70) == BACKWARD


def test_the_operator_does_the_same_without_inductor() -> None:
    def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ima.flash_attention(q, k, v, is_causal=True, enable_gqa=True)

    assert check(eager, 512, 70) == SPLIT


def test_gradients_of_a_packed_projection_are_still_written_side_by_side() -> None:
    """Heads of queries, of keys and of values are slices of one buffer: the last kernel writes slices of one."""

    def packed(x: Tensor, w: Tensor) -> Tensor:
        q, k, v = (x @ w).view(*x.shape[:2], 6, 16).transpose(1, 2).split((4, 1, 1), 1)
        return attend(q, k, v)

    x, w = torch.randn(2, 512, 16), torch.randn(16, 96)
    own = [t.to("mps").requires_grad_() for t in (x, w)]
    compiled = torch.compile(packed, backend="mps_attention", dynamic=False)

    def step() -> list[Tensor]:
        return list(torch.autograd.grad(compiled(*own).square().sum(), own))

    got, (_, backward) = run_and_get_code(step)
    exact = [t.double().requires_grad_() for t in (x, w)]
    for name, grad, expected in zip("xw", got, torch.autograd.grad(packed(*exact).square().sum(), exact), strict=True):
        budgets.check(name, grad, expected, budgets.BACKWARD[torch.float32])
    calls = {call.role: call for call in attention_calls(backward)}
    assert set(calls) == SPLIT
    written = [calls["backward_dq"].tensors[-1], *calls["backward_sum"].tensors[-2:]]
    assert len({tensor.buffer for tensor in written}) == 1

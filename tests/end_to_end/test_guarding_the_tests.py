"""The checks that everything here rests on see what they must see: a missing barrier, a wrong scale."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
import torch.nn.functional as F
from inductor_mps_attention.codegen import Problem, Role, launch_grid, pack, plan, render

import inductor_mps_attention as ima
from inductor_mps_attention import simulator
from inductor_mps_attention.operators import flash_backward, flash_forward
from tests.support import budgets, oracle
from tests.support.inputs import Shape, make

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def launch_forward(text: str, entry: str) -> torch.Tensor:
    """The forward kernel of this text in check mode, on 2 heads of 100 queries and keys: several key tiles."""
    q, k, v, _ = make(Shape(queries=100, keys=100), torch.float32, device="cpu")
    planned = plan(Problem("float32", 64, 64, has_lower=False, has_upper=True, aligned=True), Role.FORWARD)
    tensors = {"q": q, "k": k, "v": v, "out": torch.full_like(q, torch.nan), "logsumexp": torch.empty(1, 2, 100)}
    values = {"batch": 1, "heads": 2, "kv_heads": 2, "q_len": 100, "kv_len": 100, "lower": 0, "upper": 0}
    for name, tensor in tensors.items():
        for axis, stride in zip(("batch", "head", "row"), tensor.stride(), strict=False):
            values[f"{name}_{axis}_stride"] = stride
    threads, group = launch_grid(planned, 1, 2, 2, 100, 100)
    kernel = getattr(simulator.compile_shader(text, check="full"), entry)
    integers = pack(planned, {name: values[name] for parameter in planned.parameters for name in [parameter.name]})
    buffers = [tensors[buffer.name] for buffer in planned.buffers]
    kernel(*buffers, integers, 0.125, threads=threads, group_size=group)
    return tensors["out"]


def rendered_forward():
    planned = plan(Problem("float32", 64, 64, has_lower=False, has_upper=True, aligned=True), Role.FORWARD)
    return render(planned)


def test_the_kernel_as_it_is_has_no_report() -> None:
    source = rendered_forward()
    q, k, v, grad_out = make(Shape(queries=100, keys=100), torch.float32, device="cpu")
    expected = oracle.attention(q, k, v, grad_out, scale=0.125, upper=0).out
    budgets.check("out", launch_forward(source.text, source.entry), expected, budgets.FORWARD[torch.float32])


def test_each_barrier_of_the_forward_kernel_is_needed_and_its_loss_is_reported() -> None:
    source = rendered_forward()
    places = [match.start() for match in re.finditer(re.escape(BARRIER), source.text)]
    assert places
    for place in places:
        broken = source.text[:place] + source.text[place + len(BARRIER) :]
        with pytest.raises(simulator.CheckError) as caught:
            launch_forward(broken, source.entry)
        assert "race" in {report.kind for report in caught.value.reports}
        assert all(report.line is not None for report in caught.value.reports)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("upper", [None, 0])
def test_all_four_kernels_pass_check_mode(dtype: torch.dtype, upper: int | None) -> None:
    """Races, bounds, uninitialised reads, divergent barriers: none, on ragged lengths and several tiles."""
    q, k, v, grad_out = make(Shape(heads=4, kv_heads=2, queries=75, keys=100), dtype, layout="packed")
    with simulator.options(check="full", poison=True):
        out, logsumexp = flash_forward(q, k, v, None, 0.125, None, upper)
        flash_backward(grad_out, q, k, v, out, logsumexp, None, 0.125, None, upper, [True, True, True])


def test_a_wrong_scale_in_the_matcher_is_seen_by_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from inductor_mps_attention.matching import proof

    q, k, v = (torch.randn(1, 2, 33, 32, device="mps") for _ in "qkv")
    exact = F.scaled_dot_product_attention(*(t.cpu().double() for t in (q, k, v)), scale=0.3)

    def compiled() -> torch.Tensor:
        torch._dynamo.reset()
        fn = lambda q, k, v: (q @ k.mT * 0.3).softmax(-1) @ v  # noqa: E731
        return torch.compile(fn, backend="mps_attention")(q, k, v)

    budgets.check("out", compiled(), exact, budgets.FORWARD[torch.float32])
    resolve = proof.resolve_scale

    def slightly_wrong(candidate, head_dim):
        scale = resolve(candidate, head_dim)
        return dataclasses.replace(scale, number=scale.number * 1.001)

    monkeypatch.setattr(proof, "resolve_scale", slightly_wrong)
    with pytest.raises(AssertionError, match="relative error"):
        budgets.check("out", compiled(), exact, budgets.FORWARD[torch.float32])
    assert ima.stats()["fused"] == 2

"""Attention inside the graphs that other graphs call: checkpoints, branches, nested regions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import inductor_mps_attention as ima
from inductor_mps_attention import Reason


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


region = torch.compiler.nested_compile_region(attend)


def branches(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.cond(q.sum() > 0, attend, lambda q, k, v: attend(q, k, v) * 2, (q, k, v))


def qkv() -> list[Tensor]:
    return [torch.randn(1, 2, 20, 32, device="mps", requires_grad=True) for _ in "qkv"]


def gradients(fn, inputs: list[Tensor]) -> list[Tensor]:
    return [out := fn(*inputs), *torch.autograd.grad(out.square().sum(), inputs)]


def checkpointed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return checkpoint(attend, q, k, v, use_reentrant=False)


# Inductor 2.13 names the Metal kernels of both branches of a cond alike and puts them into one library, with or without
# attention in them; so branches are compiled without Inductor here.
@pytest.mark.parametrize(
    ("fn", "fused", "inner"),
    [(checkpointed, 1, "inductor"), (checkpointed, 1, "aot_eager"), (branches, 2, "aot_eager")],
)
def test_bodies_are_fused_with_their_gradients(fn, fused: int, inner: str) -> None:
    inputs = qkv()
    compiled = torch.compile(fn, backend="mps_attention", options={"attention.inner": inner})
    for got, eager in zip(gradients(compiled, inputs), gradients(fn, inputs), strict=True):
        torch.testing.assert_close(got, eager, rtol=1e-4, atol=1e-5)
    assert ima.stats()["fused"] == fused
    assert ima.explain(fn, *inputs).fused == fused


def test_a_nested_region_that_is_called_twice_is_left_alone() -> None:
    """Replaced inside, its outputs have no grad_fn: training would silently stop at them."""
    inputs = qkv()
    fn = lambda q, k, v: region(region(q, k, v), k, v)  # noqa: E731
    report = ima.explain(fn, *inputs)
    assert [site.reasons[0].reason for site in report.sites] == [Reason.REGION]
    compiled = torch.compile(fn, backend="mps_attention", options={"attention.inner": "aot_eager"})
    for got, eager in zip(gradients(compiled, inputs), gradients(fn, inputs), strict=True):
        torch.testing.assert_close(got, eager, rtol=1e-4, atol=1e-5)
    assert ima.stats()["declined"] == {"REGION": 1}


def test_the_default_inductor_leaves_it_alone_as_well() -> None:
    """Inductor hands the body to the pass before the graph that calls it."""
    from inductor_mps_attention.config import Options
    from inductor_mps_attention.matching import fusion_pass

    declined: list[Reason] = []

    def backend(graph_module: torch.fx.GraphModule, example_inputs: list[Tensor]):
        attention = fusion_pass.FusionPass(Options())
        with fusion_pass.recording() as sites:
            for module in graph_module.children():
                attention(module.graph)
            attention(graph_module.graph)
        declined.extend(site.reasons[0].reason for site in sites)
        return graph_module.forward

    torch.compile(lambda q, k, v: region(region(q, k, v), k, v), backend=backend)(*qkv())
    assert declined == [Reason.REGION]

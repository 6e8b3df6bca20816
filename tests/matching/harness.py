"""Runs a function through Dynamo and the pass, then in eager: no Inductor, so a case takes a fraction of a second.

The operators' CPU reference computes what is fused, so numbers are those of the rewritten graph, gradients included.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.fx import Graph, GraphModule
from torch.utils._pytree import tree_leaves, tree_map

from inductor_mps_attention.config import Options
from inductor_mps_attention.errors import Reason
from inductor_mps_attention.matching import fusion_pass
from inductor_mps_attention.matching.site import Site

FORWARD, BACKWARD = 2e-6, 1e-5


@dataclass
class Result:
    """What the pass made of a function, and what the rewritten graph computed."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    outputs: list[Tensor]
    gradients: list[Tensor | None]
    sites: list[Site] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    grad: bool = True

    def fused(self, count: int = 1) -> Result:
        found = sum(site.fused for site in self.sites)
        reasons = [str(reason) for site in self.sites for reason in site.reasons]
        assert found == count, f"{found} fused of {len(self.sites)}, expected {count}: {reasons}"
        return self

    def declined(self, *reasons: Reason) -> Result:
        """Nothing fused, at least one site, and exactly these reasons, if any are given."""
        assert self.sites, "no attention was found at all"
        assert not any(site.fused for site in self.sites), "fused"
        got = {rejection.reason for site in self.sites for rejection in site.reasons}
        assert got, "declined without a reason"
        assert not reasons or got == set(reasons), f"{got}: {self.messages()}"
        return self

    def messages(self) -> list[str]:
        return [rejection.message for site in self.sites for rejection in site.reasons]

    def band(self) -> str:
        return str(next(site.spec.band for site in self.sites if site.spec is not None))

    def equals_fp64(self, forward: float = FORWARD, backward: float = BACKWARD) -> Result:
        """Outputs and gradients against the function itself, in eager, on float64 inputs and parameters."""
        function, inputs = in_float64(self.function), tree_map(_double, self.inputs)
        outputs, gradients = run_eager(function, inputs, self.grad)
        assert len(outputs) == len(self.outputs)
        for got, oracle in zip(self.outputs, outputs, strict=True):
            close(got, oracle, forward, "output")
        # A gradient that is zero but for rounding (the bias of k) is measured by the largest of the others.
        least = 0.1 * max(
            (oracle.nan_to_num().norm().item() for oracle in gradients if oracle is not None), default=0.0
        )
        for got, oracle in zip(self.gradients, gradients, strict=True):
            assert (got is None) == (oracle is None), "a gradient is missing, or there is one too many"
            if got is not None and oracle is not None:
                close(got, oracle, backward, "gradient", least)
        return self

    def equals_eager(self) -> Result:
        """Outputs and gradients are exactly those of the function in eager, in its own dtype."""
        inputs = tree_map(
            lambda t: t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t, self.inputs
        )
        outputs, gradients = run_eager(self.function, inputs, self.grad)
        for got, oracle in zip([*self.outputs, *self.gradients], [*outputs, *gradients], strict=True):
            torch.testing.assert_close(got, oracle, rtol=0, atol=0)
        return self


def close(got: Tensor, oracle: Tensor, budget: float, name: str, least: float = 0.0) -> None:
    """NaN stays NaN, and the rest is within the budget of the norm."""
    got, oracle = got.detach().double(), oracle.detach().double()
    assert got.shape == oracle.shape, f"{name}: shape {tuple(got.shape)}, eager {tuple(oracle.shape)}"
    assert torch.equal(got.isnan(), oracle.isnan()), f"{name}: NaN in other places than in eager"
    difference = (got - oracle).nan_to_num().norm()
    scale = oracle.nan_to_num().norm().clamp_min(max(least, 1e-3))
    assert difference <= budget * scale, f"{name}: error {difference / scale:.1e}, budget {budget:.0e}"


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    return copy.deepcopy(function).double() if isinstance(function, nn.Module) else function


def _double(item: Any) -> Any:
    if isinstance(item, Tensor) and item.is_floating_point():
        return item.detach().double().requires_grad_(item.requires_grad)
    return item


def run_eager(
    function: Callable[..., Any], inputs: tuple[Any, ...], grad: bool
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Outputs, and the gradients of a seeded random loss for all inputs and parameters that want one."""
    torch.manual_seed(1)
    with torch.set_grad_enabled(grad):
        returned = function(*inputs)
    outputs = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, Tensor)]
    wanted = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
    wanted += [p for p in function.parameters() if p.requires_grad] if isinstance(function, nn.Module) else []
    differentiable = [output for output in outputs if output.requires_grad]
    if not grad or not wanted or not differentiable:
        return outputs, []
    generator = torch.Generator().manual_seed(2)
    weights = [torch.randn(output.shape, generator=generator).to(output.dtype) for output in differentiable]
    return outputs, list(torch.autograd.grad(differentiable, wanted, weights, allow_unused=True))


def fuse(
    function: Callable[..., Any],
    *inputs: Any,
    grad: bool = True,
    dynamic: bool | None = None,
    aten: bool = False,
    options: Options | None = None,
    device_types: tuple[str, ...] = ("cpu",),
) -> Result:
    """Compiles with a backend that is the pass and nothing else. An internal failure of the pass raises.

    aten: the graph is what torch.export makes of the function, as AOTInductor hands it over.
    """
    if aten:
        return _fuse_exported(function, inputs, grad, dynamic, options or Options(), device_types)
    sites: list[Site] = []
    graphs: list[Graph] = []

    def backend(graph_module: GraphModule, examples: list[Any]) -> Callable[..., Any]:
        sites.extend(_run_pass(graph_module, options or Options(), device_types))
        graphs.append(graph_module.graph)
        return graph_module.forward

    torch._dynamo.reset()
    inputs = tuple(tree_map(_wants_grad, inputs)) if grad else inputs
    compiled = torch.compile(function, backend=backend, dynamic=dynamic)
    outputs, gradients = run_eager(compiled, inputs, grad)
    return Result(function, inputs, outputs, gradients, sites, graphs, grad)


def _run_pass(graph_module: GraphModule, options: Options, device_types: tuple[str, ...]) -> list[Site]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="mps_attention: matching failed")
        return fusion_pass.run(graph_module, options, device_types)


class _Called(nn.Module):
    """torch.export takes modules only."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def _fuse_exported(
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    grad: bool,
    dynamic: bool | None,
    options: Options,
    device_types: tuple[str, ...],
) -> Result:
    inputs = tuple(tree_map(_wants_grad, inputs)) if grad else inputs
    module = function if isinstance(function, nn.Module) else _Called(function)
    each = tuple(dict.fromkeys(range(t.dim()), Dim.AUTO) if isinstance(t, Tensor) else None for t in inputs)
    shapes = (each,) if isinstance(module, _Called) else each
    with torch.set_grad_enabled(grad):
        program = torch.export.export(module, inputs, strict=False, dynamic_shapes=shapes if dynamic else None)
    exported = program.module(check_guards=False)
    sites = _run_pass(exported, options, device_types)
    outputs, gradients = run_eager(exported, inputs, grad)
    return Result(function, inputs, outputs, gradients, sites, [exported.graph], grad)


def _wants_grad(item: Any) -> Any:
    if isinstance(item, Tensor) and item.is_floating_point():
        return item.detach().clone().requires_grad_()
    return item


def tensors(*shape: int, count: int = 3, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Random tensors, the same in each run."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for _ in range(count))

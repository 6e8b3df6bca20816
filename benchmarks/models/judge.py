"""One way of running a model -> its sites, and how far its outputs and gradients are from eager's.

Dynamo captures the graphs and the pass rewrites them; the operators' CPU reference computes, so nothing is compiled.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from inductor_mps_attention.config import Options
from inductor_mps_attention.matching import fusion_pass
from inductor_mps_attention.matching.site import Site

from .entry import Entry, Inputs, padding
from .ways import Outcome, Way


def judge(entry: Entry, way: Way) -> Outcome:
    """Captures, rewrites, runs and compares; an internal failure of the pass raises."""
    sites: list[Site] = []
    graphs = 0

    def backend(graph_module: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="mps_attention: matching failed")
            found = fusion_pass.run(graph_module, Options(key_padding=way.key_padding), ("cpu",), count=False)
        sites.extend(found)
        return graph_module.forward

    torch._dynamo.reset()
    model = entry.build(way.implementation).train(way.train)
    eager = copy.deepcopy(model)
    compiled = torch.compile(model, backend=backend, dynamic=way.dynamic)
    error = 0.0
    for length in way.lengths:
        given = _inputs(entry, way, length)
        error = max(error, _distance(_results(compiled, model, given, way), _results(eager, eager, given, way)))
    declined = [site.reasons[0] for site in sites if not site.fused]
    texts = tuple((rejection.reason.value, rejection.message) for rejection in declined)
    return Outcome(way, len(sites) - len(declined), len(sites), texts, error, graphs)


def _inputs(entry: Entry, way: Way, length: int) -> dict[str, Any]:
    given: dict[str, Any] = dict(entry.inputs(length))
    if way.padded:
        for name in entry.padded:
            like = given["decoder_input_ids" if name.startswith("decoder") else "input_ids"]
            # Decoders are padded on the left in generation: their first rows see no key at all.
            given[name] = padding(like.shape[1], left=entry.cache and not way.train)
    if way.cache is not None:
        given["use_cache"] = way.cache
    return given


def _results(call: Callable[..., Any], model: nn.Module, given: Inputs, way: Way) -> list[Tensor]:
    """Floating outputs, and in training the gradients of a seeded loss as one vector."""
    model.zero_grad()
    torch.manual_seed(0)  # some models draw random numbers in training, whatever their dropout
    with torch.set_grad_enabled(way.train):
        returned = call(**given)
    first = next(leaf for leaf in tree_leaves(list(returned.values()) if isinstance(returned, dict) else returned)
                 if isinstance(leaf, Tensor) and leaf.is_floating_point())  # fmt: skip
    if not way.train:
        return [first]
    torch.manual_seed(1)
    (first * torch.randn_like(first)).sum().backward()
    gradients = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    return [first.detach(), torch.cat(gradients)]


def _distance(ours: list[Tensor], eager: list[Tensor]) -> float:
    return max(float((a - b).norm() / b.norm()) for a, b in zip(ours, eager, strict=True))

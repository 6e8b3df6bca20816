"""Will stock Inductor rewrite what we left alone? It is asked: its own joint-graph passes run on a trace of the graph.

Its attention patterns ignore the dim of the softmax, and so take a softmax over another dim between two products for
one over the last (pytorch#196468): silently wrong, however the code was compiled. Only `explain` asks, since tracing
costs a second. Inductor's passes are private; a failure to ask is told as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from .errors import Reason
from .matching.nodes import location, value
from .matching.site import Site

_MISCOMPILED = (
    "stock Inductor will rewrite it as if the softmax were over the last dim, which gives other values"
    " (pytorch#196468); torch._inductor.config.pattern_matcher = False keeps it from that"
)
_REWRITTEN = "stock Inductor will rewrite it as its own scaled_dot_product_attention"


def with_notes(sites: list[Site], graph_module: GraphModule) -> list[Site]:
    """The sites of a graph that the pass went over; those that stock Inductor will rewrite say so in `note`."""
    if all(site.fused or site.kind != "manual" for site in sites):
        return sites
    try:
        rewritten = _rewritten(graph_module)
    except Exception as error:  # private passes of another version: the report must still come, and say what it lacks
        text = f"stock Inductor could not be asked about it: {type(error).__name__}: {error}"
        return [site if site.fused else replace(site, note=text) for site in sites]
    return [_noted(site, rewritten) for site in sites]


def _noted(site: Site, rewritten: set[str]) -> Site:
    if site.fused or site.kind != "manual" or site.location not in rewritten:
        return site
    over_another_dim = any(rejection.reason is Reason.SOFTMAX_AXIS for rejection in site.reasons)
    return replace(site, note=_MISCOMPILED if over_another_dim else _REWRITTEN)


def _rewritten(graph_module: GraphModule) -> set[str]:
    """The lines whose exponentials are gone after Inductor's joint-graph passes, as in inference."""
    from torch._inductor import config
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    if not config.pattern_matcher:
        return set()
    traced = _traced(graph_module)
    before = _exponentials(traced)
    without_others = {"joint_custom_pre_pass": None, "joint_custom_post_pass": None}
    with _counters_kept(), torch.no_grad(), config.patch(without_others):
        joint_graph_passes(traced)
    return set((before - _exponentials(traced)).keys())


def _traced(graph_module: GraphModule) -> GraphModule:
    """The graph in ATen operators, decomposed as Inductor decomposes it before it looks for attention."""
    from torch._inductor.decomposition import select_decomp_table

    examples = [value(node) for node in graph_module.graph.nodes if node.op == "placeholder"]
    fake_mode = next((mode for mode in (getattr(e, "fake_mode", None) for e in examples) if mode is not None), None)
    with fake_mode or nullcontext(), preserve_node_meta(), torch.no_grad():
        trace = make_fx(Interpreter(graph_module).run, decomposition_table=select_decomp_table())
        traced: GraphModule = trace(*examples)
    return traced


def _exponentials(graph_module: GraphModule) -> Counter[str]:
    nodes: list[Node] = list(graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default))
    return Counter(location(node) for node in nodes)


@contextmanager
def _counters_kept() -> Iterator[None]:
    """Dynamo's statistics as they were: nothing is compiled here."""
    before: dict[str, Any] = {name: Counter(counts) for name, counts in counters.items()}
    try:
        yield
    finally:
        counters.clear()
        for name, counts in before.items():
            counters[name].update(counts)

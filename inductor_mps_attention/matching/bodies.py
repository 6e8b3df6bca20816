"""Graphs inside graphs: the bodies of checkpoints, branches and nested regions, found through the nodes that call them.

Inductor hands each body to the pass on its own, before its parent and without a word of what calls it. Only the parent
knows whether a body may be rewritten, so a body that can be told from a graph of its own waits for its parent's turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch._ops import HigherOrderOperator
from torch.fx import Graph, GraphModule, Node

NESTED_REGION = "invoke_subgraph"


@dataclass(frozen=True)
class Body:
    """One graph that a node of another graph calls. refusal: why no attention in it may be fused, or None."""

    module: GraphModule
    refusal: str | None


def waits_for_parent(graph: Graph) -> bool:
    """Arguments of Dynamo's own graphs come from the user's frame; a body's are made while it is traced."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    traced = any("creation_timestamp" in node.meta for node in placeholders)
    return traced and not any("grapharg" in node.meta for node in placeholders)


def bodies(graph: Graph) -> Iterator[Body]:
    """Each body that a node of `graph` calls, once, in the order of the calls."""
    seen: set[str] = set()
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, HigherOrderOperator):
            continue
        for name in _modules_called(node):
            module = getattr(graph.owning_module, name, None)
            if isinstance(module, GraphModule) and name not in seen:
                seen.add(name)
                yield Body(module, _refusal(node.target))


def _modules_called(node: Node) -> list[str]:
    return [str(used.target) for used in node.all_input_nodes if used.op == "get_attr"]


def _refusal(operator: HigherOrderOperator) -> str | None:
    if operator.name() != NESTED_REGION:
        return None
    # Seen on torch 2.13: the outputs of a region that is called twice and holds our operator carry no gradient.
    return "inside a nested_compile_region that is called more than once, where the operator's gradient gets lost"

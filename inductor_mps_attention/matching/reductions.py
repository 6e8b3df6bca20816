"""`amax`, `sum` and `logsumexp` over one dim that keeps its place, however it is written.

Knows nothing of attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from .canonical import Op, canonical
from .nodes import Size, is_tensor, same_sizes, shape, source_of
from .signatures import given

_REDUCTIONS = frozenset({Op.AMAX, Op.SUM, Op.LOGSUMEXP})


@dataclass(frozen=True)
class Reduction:
    """`source` reduced over `dim` (counted from the front), of size 1 there.

    nodes: all of it in graph order, the first reads `source`, the last is the result.
    """

    op: Op
    source: Node
    dim: int
    nodes: tuple[Node, ...]


def reduction(node: Any) -> Reduction | None:
    """The reduction whose result `node` is, seen through `detach`, `unsqueeze`, `[..., None]` and pairs of max; or
    None.
    """
    nodes: list[Node] = []
    while canonical(node) is Op.EXPAND:
        nodes.append(node)
        node = source_of(node)
    kept = node
    while isinstance(node, Node) and canonical(node) not in _REDUCTIONS:
        if not _is_looked_through(node):
            return None
        nodes.append(node)
        node = source_of(node)
    if not isinstance(node, Node):
        return None
    nodes.append(node)
    source, dim = given(node, "input"), given(node, "dim")
    if isinstance(dim, (list, tuple)) and len(dim) == 1:
        dim = dim[0]
    if not is_tensor(source) or not isinstance(dim, int) or isinstance(dim, bool):
        return None
    if not is_tensor(kept):
        return None
    # Views keep the order of the elements, so the sizes alone say where the dim of size 1 stands.
    before, dim = shape(source), dim % len(shape(source))
    if not same_sizes((*before[:dim], 1, *before[dim + 1 :]), shape(kept)):
        return None
    if kept is not nodes[0] and not _expands_only(nodes[0], before, dim):
        return None
    while canonical(source) is Op.DETACH:
        nodes.append(source)
        source = source_of(source)
    return Reduction(canonical(node), source, dim, tuple(reversed(nodes)))


def _expands_only(node: Node, before: tuple[Size, ...], dim: int) -> bool:
    """Does the expanded result differ from the reduced one in no other dim?"""
    after = shape(node)
    return len(after) == len(before) and same_sizes((*before[:dim], after[dim], *before[dim + 1 :]), after)


def _is_looked_through(node: Node) -> bool:
    op = canonical(node)
    if op is Op.GETITEM:
        index = node.args[1]
        parts = index if isinstance(index, tuple) else (index,)
        if not is_tensor(node.args[0]):
            return bool(index == 0)
        return all(part is None or part is Ellipsis or part == slice(None) for part in parts)
    return op in (Op.DETACH, Op.VIEW)


def shift_of(node: Any, op: Op) -> Reduction | None:
    """The reduction of x that `node` subtracts from x itself: `x - amax(x)`, `x - logsumexp(x)`."""
    if canonical(node) is not Op.SUB or given(node, "alpha") != 1:
        return None
    found = reduction(given(node, "other"))
    return found if found is not None and found.op is op and found.source is given(node, "input") else None


def shift_from(node: Any) -> Reduction | None:
    """The maximum of x that x itself is subtracted from: `amax(x) - x`."""
    if canonical(node) is not Op.SUB or given(node, "alpha") != 1:
        return None
    found = reduction(given(node, "input"))
    return found if found is not None and found.op is Op.AMAX and found.source is given(node, "other") else None

"""What happens between the first product and the last: writes to q, k or v, and changes of autocast, grad mode or
functorch level.

The fused operator stands where the last product stood, so q, k and everything folded into q are read later than in
eager.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch.fx import Graph, Node

from ..errors import Reason, Rejection
from .candidate import Candidate
from .canonical import Op, canonical, spelling
from .findings import rejection
from .flow import Positions
from .memory import may_share, write_targets


def nested_regions(graph: Graph) -> dict[Node, int]:
    """Depth of `torch.func.grad`, `jvp` and `vmap` levels at each node inside one.

    An operator's autograd does not nest there.
    """
    depth, inside = 0, {}
    for node in graph.nodes:
        if canonical(node) is Op.FUNCTORCH:
            depth += 1 if "increment" in spelling(node) else -1
        elif depth > 0:
            inside[node] = depth
    return inside


def region_changes(candidate: Candidate, reads: Iterable[Node], positions: Positions) -> list[Rejection]:
    """A Rejection for each node between the first read and the output that makes reading later another function."""
    assert candidate.out is not None
    links = set(candidate.chain)
    start = min(positions[node] for node in (*candidate.chain, *candidate.copies))
    read = list(reads)
    noes = []
    for node in list(positions)[start : positions[candidate.out]]:
        if node in links:
            continue
        if canonical(node) in (Op.REGION, Op.FUNCTORCH):
            text = f"{spelling(node)} changes the autocast, grad or functorch mode inside the attention"
            noes.append(rejection(Reason.REGION, text, node))
        elif any(may_share(target, source) for target in write_targets(node) for source in read):
            text = f"{spelling(node)} `{node.name}` may write into q, k or v between the two products"
            noes.append(rejection(Reason.MUTATION, text, node))
    return noes

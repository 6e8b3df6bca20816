"""Transposes and views of scores and weights, those that are undone later included.

Knows nothing of what is computed.
"""

from __future__ import annotations

from torch.fx import Node

from .axes import follow, is_mixed, mixed_by_view
from .candidate import Candidate
from .canonical import Op, canonical
from .nodes import same_sizes, shape, source_of


def follow_view(candidate: Candidate, link: Node, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Axes of the output of a PERMUTE or VIEW, given those of its input; None if they are lost.

    Views keep the order of the elements: where one gives back sizes that were there before, since the last transpose,
    the axes are those of then. So `scores.view(-1, keys)`, which mixes batch, heads and queries, can be undone.
    """
    if canonical(link) is not Op.VIEW:
        candidate.layouts.clear()
        return None if is_mixed(axes) else follow(link, axes, len(candidate.lead))
    candidate.layouts.append((shape(source_of(link)), axes))
    for sizes, before in candidate.layouts:
        if same_sizes(shape(link), sizes):
            return before
    followed = None if is_mixed(axes) else follow(link, axes, len(candidate.lead))
    if followed is not None:
        return followed
    mixed = mixed_by_view(link)
    return None if mixed is None else (*mixed[:-1], axes[-1])

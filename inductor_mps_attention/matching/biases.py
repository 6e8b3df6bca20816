"""Is what is added to the scores a bias, which no kernel adds, and not a mask that could not be proved?"""

from __future__ import annotations

import torch
from torch.fx import Node

from .canonical import COMPARISONS, Op, canonical
from .nodes import ancestors, inputs_beneath, is_tensor, value

_HIDING = frozenset({Op.MASKED_FILL, Op.WHERE, Op.TRIL, Op.TRIU, Op.NOT, Op.AND, Op.OR, *COMPARISONS})

_NAMED = 3


def bias(mask: Node) -> str | None:
    """What the bias is made of, None where the tensor may be a mask: a boolean, an input of the graph as it is, or
    computed with anything that hides keys.
    """
    if not is_tensor(mask) or not value(mask).dtype.is_floating_point or mask.op in ("placeholder", "get_attr"):
        return None
    made_of = list(ancestors(mask))
    if any(canonical(node) in _HIDING or _is_boolean(node) for node in made_of):
        return None
    inputs = inputs_beneath(mask)
    if not inputs:
        return "a bias of constants"
    names = ", ".join(f"`{name}`" for name in inputs[:_NAMED])
    more = len(inputs) - _NAMED  # behind a few layers it comes from all of their parameters
    return f"a bias computed from {names}" + (f" and {more} more" if more > 0 else "")


def _is_boolean(node: Node) -> bool:
    return is_tensor(node) and value(node).dtype is torch.bool

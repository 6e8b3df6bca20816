"""Which lead axes are batch, key/value heads and groups of query heads; and heads that were repeated for the groups.

`.repeat` is not undone: it tiles, so query head h would read key head h % kv_heads, not h // group.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import Node

from .axes import ONE, Operand, is_regrouped, read_through
from .candidate import Candidate
from .canonical import Op, canonical
from .nodes import Size, is_tensor, known, same_sizes, shape, value
from .signatures import given


@dataclass(frozen=True)
class HeadSplit:
    """The lead axes are `batch` axes, then `kv` (0 or 1) axes of key/value heads, then `group` axes along which k and
    v repeat.

    kv_heads: the heads that k and v have; differs from the size of the kv axis only after repeated heads were undone,
    or with `enable_gqa`.
    """

    batch: int
    kv: int
    group: int


def split_heads(candidate: Candidate) -> HeadSplit:
    """Trailing lead axes along which both k and v are broadcast are groups (multi-query, 5-D grouped attention)."""
    assert candidate.k is not None
    assert candidate.v is not None
    lead, group = len(candidate.lead), 0
    if not candidate.grouped and not is_regrouped(candidate.v.axes):
        while group < lead - 1 and _shared(candidate, lead - 1 - group):
            group += 1
    kv = 1 if lead - group >= 2 or (candidate.grouped and lead >= 1) else 0
    return HeadSplit(lead - group - kv, kv, group)


def _shared(candidate: Candidate, axis: int) -> bool:
    assert candidate.k is not None
    assert candidate.v is not None
    if known(candidate.lead[axis] == 1):
        return False
    return known(candidate.k.size(axis) == 1) and known(candidate.v.size(axis) == 1)


def undo_repeats(candidate: Candidate) -> None:
    """Replaces k and v by what they were before their heads were repeated, if both were, by the same number."""
    if candidate.grouped or not candidate.lead or candidate.k is None or candidate.v is None:
        return
    if is_regrouped(candidate.v.axes):
        return
    head = len(candidate.lead) - 1
    key, value = _unrepeated(candidate.k, head), _unrepeated(candidate.v, head)
    if key is None or value is None or not known(key[0].size(head) == value[0].size(head)):
        return
    candidate.k, candidate.v = key[0], value[0]
    candidate.copies += key[1] + value[1]
    candidate.grouped = True


def _unrepeated(operand: Operand, head: int) -> tuple[Operand, list[Node]] | None:
    """The operand before its head axis was repeated, and the copies that are read through."""
    operand, copies = read_through(operand, lambda node: canonical(node) is Op.COPY)
    node, axes = operand.node, operand.axes
    if head not in axes:
        return None
    place = axes.index(head)
    if canonical(node) is Op.REPEAT_INTERLEAVE:
        base = _interleaved(node, place)
        return None if base is None else (Operand(base, axes), [*copies, node])
    if canonical(node) is not Op.VIEW:
        return None
    found = _widened(node, place)
    if found is None:
        return None
    base, between, has_one = found
    inner = (*axes[: place + 1], ONE, *axes[place + 1 :]) if has_one else axes
    return Operand(base, inner), [*copies, *between, node]


def _interleaved(node: Node, place: int) -> Node | None:
    """One number of repeats for all heads."""
    source: Node = given(node, "input")
    repeats, dim = given(node, "repeats"), given(node, "dim")
    repeats = value(repeats) if isinstance(repeats, Node) else repeats
    if not is_tensor(source) or not isinstance(repeats, (int, torch.SymInt)) or not isinstance(dim, int):
        return None
    return source if dim % len(shape(node)) == place else None


def _widened(node: Node, place: int) -> tuple[Node, list[Node], bool] | None:
    """x of `x.expand(.., heads, n, ..).reshape(.., heads * n, ..)`, the nodes in between, and whether x has a dim of
    size 1 in the place of n: it has none where n copies of it were stacked.
    """
    wide = given(node, "input")
    between = [wide]
    while canonical(wide) is Op.COPY:
        wide = given(wide, "input")
        between.append(wide)
    if not is_tensor(wide):
        return None
    full, after = shape(wide), shape(node)
    if len(full) != len(after) + 1:
        return None
    merged: tuple[Size, ...] = (*full[:place], full[place] * full[place + 1], *full[place + 2 :])
    if not same_sizes(merged, after):
        return None
    if canonical(wide) is Op.STACK:
        base = _stacked(wide, place + 1)
        return None if base is None else (base, between, False)
    if canonical(wide) not in (Op.EXPAND, Op.REPEAT) or not is_tensor(given(wide, "input")):
        return None
    base = given(wide, "input")
    # Repeating or expanding a dim of size 1 is the same; all others must stay as they are.
    narrow: tuple[Size, ...] = (*full[: place + 1], 1, *full[place + 2 :])
    return (base, between, True) if same_sizes(shape(base), narrow) else None


def _stacked(stack: Node, place: int) -> Node | None:
    """x of `torch.stack([x, x, x], place)`."""
    tensors, dim = given(stack, "tensors"), given(stack, "dim")
    if not isinstance(tensors, (list, tuple)) or not isinstance(dim, int) or dim % len(shape(stack)) != place:
        return None
    first: Node = tensors[0]
    return first if all(tensor is first for tensor in tensors) else None

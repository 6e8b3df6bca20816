"""Which lead axes are batch, key/value heads and groups of query heads; and heads that were repeated for the groups.

`.repeat` is not undone: it tiles, so query head h would read key head h % kv_heads, not h // group.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch.fx import Node

from .axes import ONE, Operand, is_regrouped, without_permutes
from .candidate import Candidate
from .canonical import Op, canonical
from .nodes import Size, argument, is_tensor, known, same_sizes, shape, source_of


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
    copies: list[Node] = []
    operand = without_permutes(operand)
    while canonical(operand.node) is Op.COPY and is_tensor(argument(operand.node, 0, "input", "self")):
        copies.append(operand.node)
        operand = without_permutes(Operand(argument(operand.node, 0, "input", "self"), operand.axes))
    node, axes = operand.node, operand.axes
    if head not in axes:
        return None
    place = axes.index(head)
    if canonical(node) is Op.REPEAT_INTERLEAVE:
        base = _interleaved(node, place)
        return None if base is None else (Operand(base, axes), [*copies, node])
    if canonical(node) is Op.VIEW:
        base, between = _expanded(node, place)
        if base is None:
            return None
        return Operand(base, (*axes[: place + 1], ONE, *axes[place + 1 :])), [*copies, *between, node]
    return None


def _interleaved(node: Node, place: int) -> Node | None:
    source = argument(node, 0, "input", "self")
    repeats, dim = argument(node, 1, "repeats"), argument(node, 2, "dim")
    if not is_tensor(source) or not isinstance(repeats, int) or not isinstance(dim, int):
        return None
    return source if dim % len(shape(node)) == place else None


def _expanded(node: Node, place: int) -> tuple[Node | None, list[Node]]:
    """The input of `x.expand(.., heads, n, ..).reshape(.., heads * n, ..)`, where x has size 1 in the place of n; and
    the nodes in between, at the first of which eager reads x.
    """
    expand = source_of(node)
    between = [expand]
    while canonical(expand) is Op.COPY:
        expand = source_of(expand)
        between.append(expand)
    if canonical(expand) is not Op.EXPAND or not is_tensor(source_of(expand)):
        return None, []
    before, wide, after = shape(source_of(expand)), shape(expand), shape(node)
    if len(before) != len(wide) or len(wide) != len(after) + 1 or not known(before[place + 1] == 1):
        return None, []
    kept: tuple[Size, ...] = (*wide[: place + 1], *wide[place + 2 :])
    merged: tuple[Size, ...] = (*wide[:place], wide[place] * wide[place + 1], *wide[place + 2 :])
    source: tuple[Size, ...] = (*before[: place + 1], *before[place + 2 :])
    if not same_sizes(kept, source) or not same_sizes(merged, after):
        return None, []
    return source_of(expand), between

"""Match -> nodes: q, k and v in (batch, heads, length, head_dim), the operator, and its output in the shape of the
old one.

Nodes are ATen calls with examples, so that later passes and later matches can read them. Nothing is decided here.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from ..operators import flash_forward
from .axes import INNER, ONE, VALUE, Operand, is_regrouped
from .builder import Builder
from .empty_rows import EmptyRows
from .expressions import bound
from .fillers import fill_empty_rows
from .key_masks import KeyMaskNodes
from .match import Match
from .nodes import known, shape, value

aten = torch.ops.aten


def emit(match: Match, builder: Builder, key_masks: KeyMaskNodes) -> Node:
    """Adds the operator before `match.out`; returns the node that has its value. `match.out` keeps its users."""
    for symbolic in match.specialised:
        _fix(symbolic)
    q = _operand(match, builder, match.q, match.row, INNER)
    for factor in match.on_q:
        target = aten.div.Tensor if factor.divides else aten.mul.Tensor
        q = builder.call(target, q, _one_number(builder, factor.operand))
    k = _operand(match, builder, match.k, match.key, INNER)
    v = _operand(match, builder, match.v, match.key, VALUE)
    band = match.spec.band
    lower, upper = (None if size is None else bound(builder, size, (q, k, v)) for size in (band.lower, band.upper))
    key_mask = None if match.key_mask is None else key_masks.node(match.key_mask)
    both = builder.call(flash_forward, q, k, v, key_mask, match.spec.scale, lower, upper)
    out = builder.call(operator.getitem, both, 0)
    if match.empty_rows is not EmptyRows.ZERO:
        logsumexp = builder.call(operator.getitem, both, 1)
        out = fill_empty_rows(builder, match.empty_rows, (q, k, v), out, logsumexp, match.spec.scale)
    if match.out_is_written:
        out = builder.call(aten.clone.default, out)
    return _restore(match, builder, out)


def _fix(symbolic: Any) -> None:
    """Guards on a symbolic value: a head dim, a scale, an equality of two lengths."""
    if isinstance(symbolic, torch.SymInt):
        int(symbolic)
    elif isinstance(symbolic, torch.SymFloat):
        float(symbolic)
    elif isinstance(symbolic, torch.SymBool):
        bool(symbolic)


def _one_number(builder: Builder, operand: Any) -> Any:
    """A one-element tensor without dims, so that it neither adds dims to q nor promotes its dtype."""
    if isinstance(value(operand), torch.Tensor) and len(shape(operand)):
        return builder.call(aten.squeeze.default, operand)
    return operand


def _operand(match: Match, builder: Builder, operand: Operand, row: int, column: int) -> Node:
    """q, k or v as (batch, heads, row, column): only views, except where lead axes must be joined."""
    node = operand.node
    if value(node).dtype != match.spec.dtype:
        node = builder.call(aten.to.dtype, node, match.spec.dtype)
    axes = list(operand.axes)
    while ONE in axes:
        node = builder.call(aten.squeeze.dim, node, axes.index(ONE))
        axes.remove(ONE)
    lead = sorted(axis for axis in axes if axis not in (row, column))
    node = _permuted(builder, node, axes, [*lead, row, column])
    if is_regrouped(operand.axes):
        sizes = [_lead_size(match, builder, axis) for axis in range(len(match.lead))]
        node = builder.call(aten.reshape.default, node, [*sizes, builder.size(node, -2), builder.size(node, -1)])
        lead = list(range(len(match.lead)))
    for axis in range(len(match.lead)):
        if axis not in lead:
            node = builder.call(aten.unsqueeze.default, node, axis)
    batch, kept = match.heads.batch, len(match.lead)
    if column == VALUE or row == match.key:
        kept = batch + match.heads.kv
        if kept < len(match.lead):
            node = builder.call(aten.squeeze.dims, node, list(range(kept, len(match.lead))))
    node = _expanded(match, builder, node, kept, row == match.key and match.grouped)
    node = _joined(builder, node, batch, kept - batch)
    return _joined(builder, node, 0, batch)


def _permuted(builder: Builder, node: Node, axes: Sequence[int], wanted: Sequence[int]) -> Node:
    order = [axes.index(axis) for axis in wanted]
    return node if order == list(range(len(order))) else builder.call(aten.permute.default, node, order)


def _expanded(match: Match, builder: Builder, node: Node, kept: int, own_heads: bool) -> Node:
    """Broadcast along the first `kept` lead axes. own_heads: the last of them is the key heads' own."""
    full = [*match.lead[:kept]]
    if own_heads:
        full[-1] = shape(node)[kept - 1]
    short = [not known(own == size) for own, size in zip(shape(node), full, strict=False)]
    if not any(short):
        return node
    sizes = [_lead_size(match, builder, axis) if broadcast else -1 for axis, broadcast in enumerate(short)]
    return builder.call(aten.expand.default, node, [*sizes, -1, -1])


def _joined(builder: Builder, node: Node, first: int, count: int) -> Node:
    """`count` dims from `first` as one; a new one of size 1 if there is none."""
    if count == 1:
        return node
    if count == 0:
        return builder.call(aten.unsqueeze.default, node, first)
    return builder.call(aten.flatten.using_ints, node, first, first + count - 1)


def _lead_size(match: Match, builder: Builder, axis: int) -> int | Node:
    """The size of a lead axis, read from an operand that has it in full."""
    wanted = match.lead[axis]
    if isinstance(wanted, int):
        return wanted
    for operand in (match.q, match.k, match.v):
        if axis in operand.axes and known(operand.size(axis) == wanted):
            return builder.size(operand.node, operand.axes.index(axis))
    return bound(builder, wanted, (match.q.node, match.k.node, match.v.node))


def _restore(match: Match, builder: Builder, out: Node) -> Node:
    """From (batch, heads, queries, v_head_dim) to the dims of `match.out`."""
    lead = list(range(len(match.lead)))
    sizes: list[int | Node] | None = None
    if is_regrouped(match.out_axes):
        lead = sorted(axis for axis in match.out_axes if axis not in (match.row, VALUE))
        sizes = [builder.size(match.v.node, match.v.axes.index(axis)) for axis in lead]
    elif len(lead) != 2 or match.heads.batch != 1:
        sizes = [_lead_size(match, builder, axis) for axis in lead]
    if sizes is not None:
        inner = [builder.size(out, 2), builder.size(out, 3)]
        out = builder.call(aten.reshape.default, out, [*sizes, *inner])
    return _permuted(builder, out, [*lead, match.row, VALUE], match.out_axes)

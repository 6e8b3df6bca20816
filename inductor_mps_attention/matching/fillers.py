"""Nodes that put into rows without a key what eager gives there, where that is not the operator's 0.

In goes the operator's output and its logsumexp, which is -inf for exactly those rows; memory stays linear in the
lengths. Each filler is a sum whose gradients are eager's, so it decides nothing about the rows that see keys.
"""

from __future__ import annotations

import math
import operator

import torch
from torch.fx import Node

from .builder import Builder
from .empty_rows import EmptyRows
from .nodes import known, shape, value

aten = torch.ops.aten


def fill_empty_rows(
    builder: Builder, kind: EmptyRows, operands: tuple[Node, Node, Node], out: Node, logsumexp: Node, scale: float
) -> Node:
    """`out` (batch, heads, queries, v_head_dim) with the rows replaced whose logsumexp is -inf.

    operands: q (batch, heads, queries, head_dim), k and v (batch, kv_heads, keys, ..).
    """
    lost = builder.call(aten.eq.Scalar, logsumexp, -math.inf)
    empty = builder.call(aten.unsqueeze.default, lost, -1)
    if kind in (EmptyRows.NAN, EmptyRows.NAN_THROUGH_SCORES):
        filler = _nan(builder, kind, operands, empty)
    else:
        filler = _mean(builder, kind, operands, scale)
    return builder.call(aten.where.self, empty, builder.call(aten.to.dtype, filler, value(out).dtype), out)


def _mean(builder: Builder, kind: EmptyRows, operands: tuple[Node, Node, Node], scale: float) -> Node:
    """The mean of v, (batch, heads, 1, v_head_dim). All weights are 1 / keys, so v's gradient is the mean's."""
    q, k, v = operands
    mean = builder.call(aten.mean.dim, v, [2], True)
    filler = _per_query_head(builder, mean, q)
    if kind is EmptyRows.MEAN or not torch.is_grad_enabled():
        return filler
    # The fill swallows the scores, yet autograd passes through the sum: dS = (dP - mean(dP)) / keys, which is the
    # gradient of the softmax's first-order part, scale / keys * sum_j (q . k_j) (v_j - mean). Its value is not there.
    centred = builder.call(aten.detach.default, builder.call(aten.sub.Tensor, v, mean))
    centred = builder.call(aten.div.Tensor, centred, builder.size(k, 2))
    moment = builder.call(aten.matmul.default, builder.call(aten.transpose.int, k, 2, 3), centred)
    slope = builder.call(aten.matmul.default, q, _per_query_head(builder, moment, q))
    slope = builder.call(aten.mul.Tensor, slope, scale)
    nothing = builder.call(aten.sub.Tensor, slope, builder.call(aten.detach.default, slope))
    return builder.call(aten.add.Tensor, filler, nothing)


def _nan(builder: Builder, kind: EmptyRows, operands: tuple[Node, Node, Node], empty: Node) -> Node:
    """NaN, whose gradient makes all of v's NaN in heads that have such a row; and q's row and all of k's, if scores
    pass it on.
    """
    q, k, v = operands
    in_row = _nan_where(builder, empty)
    in_head = _nan_where(builder, builder.call(aten.any.dim, empty, 2, True))
    totals = [(builder.call(aten.sum.dim_IntList, v, [2], True), in_head)]
    if kind is EmptyRows.NAN_THROUGH_SCORES:
        totals.append((builder.call(aten.sum.dim_IntList, k, [2, 3], True), in_head))
        totals.append((builder.call(aten.sum.dim_IntList, q, [3], True), in_row))
    filler = None
    for total, factor in totals:
        part = builder.call(aten.mul.Tensor, _per_query_head(builder, total, q), factor)
        filler = part if filler is None else builder.call(aten.add.Tensor, filler, part)
    assert filler is not None
    return filler


def _nan_where(builder: Builder, condition: Node) -> Node:
    """NaN where the condition holds, 0 elsewhere."""
    return builder.call(aten.where.Scalar, condition, math.nan, 0.0)


def _per_query_head(builder: Builder, node: Node, q: Node) -> Node:
    """(batch, kv_heads, ..) with each head repeated for its query heads."""
    kv_heads, heads = shape(node)[1], shape(q)[1]
    if known(kv_heads == heads):
        return node
    if isinstance(kv_heads, int) and isinstance(heads, int):
        groups: int | Node = heads // kv_heads
    else:
        groups = builder.call(operator.floordiv, builder.size(q, 1), builder.size(node, 1))
    return builder.call(aten.repeat_interleave.self_int, node, groups, 1)

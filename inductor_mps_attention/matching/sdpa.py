"""`F.scaled_dot_product_attention` as a candidate: its arguments say it all.

Knows nothing of hand-written spellings.
"""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from ..errors import Reason
from .axes import INNER, VALUE, Operand
from .candidate import Candidate, Factor, MaskTerm
from .findings import DeadEnd
from .nodes import is_tensor, shape, value
from .signatures import given
from .weights import check_probability


def trace_sdpa(candidate: Candidate) -> None:
    """Fills the candidate from its anchor's arguments.

    Raises DeadEnd where q, k and v are not tensors of rank 2 or more.
    """
    node = candidate.anchor
    operands = [given(node, name) for name in ("query", "key", "value")]
    if not all(is_tensor(operand) and len(shape(operand)) >= 2 for operand in operands):
        raise candidate.findings.dead_end(Reason.RANK, "q, k and v must be tensors of rank 2 or more", node)
    fill_attention(candidate, node, *operands)
    candidate.grouped = given(node, "enable_gqa") is True
    check_probability(candidate, given(node, "dropout_p"), node)
    _causality(candidate, node)
    scale = given(node, "scale")
    candidate.default_scale = scale is None
    if scale is not None:
        candidate.factors.append(Factor(scale, False, node))


def fill_attention(candidate: Candidate, node: Node, query: Node, key: Node, values: Node) -> None:
    """q, k, v of shapes (..., length, head_dim), broadcast over the lead dims, and out = `node`."""
    rank = len(shape(node))
    candidate.row, candidate.key = rank - 2, rank - 1
    candidate.lead = shape(node)[:-2]

    def operand(tensor: Node, row: int, column: int) -> Operand:
        own = len(shape(tensor))
        return Operand(tensor, (*range(rank - own, rank - 2), row, column))

    candidate.q = operand(query, candidate.row, INNER)
    candidate.k = operand(key, candidate.key, INNER)
    candidate.v = operand(values, candidate.key, VALUE)
    candidate.out, candidate.out_axes = node, (*range(rank - 2), candidate.row, VALUE)
    candidate.chain = [node]
    candidate.zero_rows = True


def _causality(candidate: Candidate, node: Node) -> None:
    mask, causal = given(node, "attn_mask"), given(node, "is_causal")
    if not isinstance(causal, bool):
        raise _no(candidate, node, "is_causal is a symbolic value; it must be True or False when the graph is compiled")
    candidate.is_causal = causal
    if mask is None:
        return
    if causal:
        raise _no(candidate, node, "attn_mask and is_causal together are an error in eager")
    rank = len(shape(node))
    axes = (*range(rank - 2), candidate.row, candidate.key)
    keeps = is_tensor(mask) and value(mask).dtype is torch.bool
    candidate.masks.append(MaskTerm(mask, "keep" if keeps else "add", -math.inf, node, axes))


def _no(candidate: Candidate, node: Node, text: str) -> DeadEnd:
    return candidate.findings.dead_end(Reason.MASK, text, node)

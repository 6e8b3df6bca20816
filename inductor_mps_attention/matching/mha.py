"""`F.multi_head_attention_forward`, one leaf in Dynamo's graph: checked, and written out as projections around an
SDPA node.

The nodes are added beside the leaf, so that the attention inside is judged like any other; they are taken back if
it is declined.
"""

from __future__ import annotations

import inspect
import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from ..errors import Reason
from .axes import REGROUPED
from .builder import Builder
from .candidate import Candidate, MaskMode, MaskTerm
from .findings import Findings
from .nodes import is_tensor, shape, value
from .sdpa import fill_attention
from .weights import check_probability

aten = torch.ops.aten
_SIGNATURE = inspect.signature(F.multi_head_attention_forward)
# Each adds keys, or replaces k or v, in a way that no kernel knows.
_UNSUPPORTED = ("bias_k", "bias_v", "static_k", "static_v")


@dataclass
class Expansion:
    """The leaf written out. `result` is the value of the leaf's first output."""

    leaf: Node
    builder: Builder
    result: Node

    def outputs(self) -> list[Node]:
        """The nodes that take the leaf's first output."""
        return [user for user in self.leaf.users if _element(user) == 0]


def expand(candidate: Candidate) -> Expansion:
    """Adds the nodes and fills the candidate.

    Raises DeadEnd, with nothing added, for a leaf that cannot be written out.
    """
    leaf, findings = candidate.anchor, candidate.findings
    bound = _SIGNATURE.bind(*leaf.args, **leaf.kwargs)
    bound.apply_defaults()
    given = bound.arguments
    _check(candidate, given)
    if findings.rejections:
        raise findings.dead_end(findings.rejections[0].reason, findings.rejections[0].message, leaf)
    builder = Builder(leaf.graph, leaf)
    with builder.whole_or_nothing():
        q, k, v = (_split_heads(builder, tensor, given["num_heads"]) for tensor in _projected(builder, given))
        attention = builder.call(aten.scaled_dot_product_attention.default, q, k, v)
        joined = builder.call(
            aten.flatten.using_ints, builder.call(aten.permute.default, attention, [2, 0, 1, 3]), 2, 3
        )
        result = builder.call(aten.linear.default, joined, given["out_proj_weight"], given["out_proj_bias"])
        fill_attention(candidate, attention, q, k, v)
        _masks(candidate, given)
        _check_result(findings, leaf, result)
    return Expansion(leaf, builder, result)


def _check(candidate: Candidate, given: dict[str, Any]) -> None:
    """Everything about the leaf's arguments that is not plain attention."""
    findings, leaf = candidate.findings, candidate.anchor
    if not all(is_tensor(given[name]) and len(shape(given[name])) == 3 for name in ("query", "key", "value")):
        findings.no(Reason.RANK, "query, key and value must have 3 dims (length, batch, channels)", leaf)
    for name in _UNSUPPORTED:
        if given[name] is not None:
            findings.no(Reason.SCORE_MODIFIED, f"{name} is given; kernels take k and v as they are projected", leaf)
    if given["add_zero_attn"] is not False:
        findings.no(Reason.SCORE_MODIFIED, "add_zero_attn adds a key", leaf)
    if given["training"] is not False:
        check_probability(candidate, given["dropout_p"], leaf)
    if not isinstance(given["num_heads"], int) or not isinstance(given["need_weights"], bool):
        findings.no(Reason.HEADS, "num_heads and need_weights must be constants when the graph is compiled", leaf)
    _check_users(candidate)


def _check_users(candidate: Candidate) -> None:
    for user in candidate.anchor.users:
        if _element(user) == 0 or (_element(user) == 1 and not user.users):
            continue
        reader = next(iter(user.users), user)
        where = "returned" if reader.op == "output" else f"used by `{reader.name}`"
        text = f"the attention weights are {where}; need_weights=False leaves them out"
        candidate.findings.no(Reason.INNER_VALUE_USED, text, user)


def _element(user: Node) -> Any:
    return user.args[1] if user.target is operator.getitem else None


def _projected(builder: Builder, given: dict[str, Any]) -> list[Node]:
    """q, k and v of (length, batch, channels)."""
    inputs = [given["query"], given["key"], given["value"]]
    bias = given["in_proj_bias"]
    if not given["use_separate_proj_weight"] and inputs[0] is inputs[1] is inputs[2]:
        packed = builder.call(aten.linear.default, inputs[0], given["in_proj_weight"], bias)
        return _chunks(builder, packed, -1)
    if given["use_separate_proj_weight"]:
        weights = [given[f"{name}_proj_weight"] for name in "qkv"]
    else:
        weights = _chunks(builder, given["in_proj_weight"], 0)
    biases = [None] * 3 if bias is None else _chunks(builder, bias, 0)
    return [builder.call(aten.linear.default, *parts) for parts in zip(inputs, weights, biases, strict=True)]


def _chunks(builder: Builder, node: Node, dim: int) -> list[Node]:
    pieces = builder.call(aten.chunk.default, node, 3, dim)
    return [builder.call(operator.getitem, pieces, place) for place in range(3)]


def _split_heads(builder: Builder, node: Node, heads: int) -> Node:
    """(length, batch, channels) -> (batch, heads, length, head_dim), a view."""
    split = builder.call(aten.unflatten.int, node, 2, [heads, -1])
    return builder.call(aten.permute.default, split, [1, 2, 0, 3])


def _masks(candidate: Candidate, given: dict[str, Any]) -> None:
    """With need_weights the leaf is a softmax, without it SDPA, to which is_causal is then told instead of the mask,
    unless there is key padding. Either adds both masks to the scores, booleans (True hides) as -inf.
    """
    candidate.default_scale = True
    candidate.zero_rows = not given["need_weights"]
    mask, padding = given["attn_mask"], given["key_padding_mask"]
    if mask is not None and padding is None and given["is_causal"] is True and not given["need_weights"]:
        candidate.is_causal = True
        return
    # A 3-D attn_mask has batch and heads in one dim.
    for tensor, axes in ((mask, (REGROUPED, candidate.row, candidate.key)), (padding, (0, candidate.key))):
        if tensor is not None:
            drops = is_tensor(tensor) and value(tensor).dtype is torch.bool
            mode: MaskMode = "masked_fill" if drops else "add"
            candidate.masks.append(MaskTerm(tensor, mode, -float("inf"), candidate.anchor, axes))


def _check_result(findings: Findings, leaf: Node, result: Node) -> None:
    """Under autocast the leaf computes in another dtype than its inputs say; that is not followed."""
    wanted, got = value(leaf)[0], value(result)
    if wanted.dtype != got.dtype or wanted.shape != got.shape:
        text = f"the leaf returns {wanted.dtype}, its parts {got.dtype}: autocast inside it is not followed"
        findings.no(Reason.CAST, text, leaf)

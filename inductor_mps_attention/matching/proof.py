"""Anchor -> Match, or all the reasons why not. The graph is only read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch.fx import Graph, Node

from ..config import Options
from ..errors import Reason
from ..spec import AttentionSpec
from . import flow, guards, masks, preference
from .axes import INNER, VALUE
from .bands import MaskReader
from .candidate import Candidate
from .canonical import Op, canonical, spelling
from .findings import DeadEnd
from .heads import HeadSplit, split_heads, undo_repeats
from .match import Match
from .memory import is_written
from .mha import Expansion, expand
from .nodes import hint, value
from .precision import choose_dtype
from .regions import nested_regions, region_changes
from .scales import Scale, resolve_scale
from .scores import trace_scores
from .sdpa import trace_sdpa
from .softmaxes import Softmax, softmax_at
from .weights import trace_weights


@dataclass
class Context:
    """One graph, as it was before any rewrite. `reader` remembers each mask, which many layers share.

    `refusal`: why nothing in this graph may be fused, or None.
    """

    graph: Graph
    options: Options
    device_types: tuple[str, ...]
    positions: flow.Positions
    nested: dict[Node, int]
    reader: MaskReader
    refusal: str | None = None

    @classmethod
    def of(cls, graph: Graph, options: Options, device_types: tuple[str, ...], refusal: str | None = None) -> Context:
        positions = {node: place for place, node in enumerate(graph.nodes)}
        return cls(graph, options, device_types, positions, nested_regions(graph), MaskReader(graph), refusal)


@dataclass(frozen=True)
class Verdict:
    """What came of one anchor. `match` is None iff there are rejections."""

    candidate: Candidate
    spec: AttentionSpec | None
    match: Match | None
    expansion: Expansion | None = None


def candidate_at(node: Node) -> tuple[Candidate, Softmax | None] | None:
    """The attention that this node is the anchor of. A softmax whose weights reach no product is none."""
    if canonical(node) is Op.SDPA and isinstance(value(node), torch.Tensor):
        return Candidate(node, "sdpa"), None
    if canonical(node) is Op.MHA:
        return Candidate(node, "mha"), None
    softmax = softmax_at(node)
    if softmax is None or not flow.goes_to_product(softmax.output):
        return None
    return Candidate(node, "manual"), softmax


def judge(candidate: Candidate, softmax: Softmax | None, context: Context) -> Verdict:
    """Walks, then asks all guards. Nothing is left out because an earlier step said no."""
    if candidate.kind == "mha":
        return _judge_leaf(candidate, context)
    try:
        if softmax is None:
            trace_sdpa(candidate)
        else:
            axes = trace_scores(candidate, softmax, context.positions)
            candidate.chain += softmax.inside
            trace_weights(candidate, softmax, axes)
    except DeadEnd:
        candidate.out = None
    return conclude(candidate, context)


def _judge_leaf(candidate: Candidate, context: Context) -> Verdict:
    """A leaf is written out first; the nodes are taken back unless the attention inside is proved."""
    try:
        expansion = expand(candidate)
    except DeadEnd:
        return conclude(candidate, context)
    place = context.positions[candidate.anchor]
    context.positions.update(dict.fromkeys(expansion.builder.added, place))
    with expansion.builder.whole_or_nothing():
        verdict = conclude(candidate, context)
    if verdict.match is None:
        expansion.builder.discard()
        return verdict
    return replace(verdict, expansion=expansion)


def conclude(candidate: Candidate, context: Context) -> Verdict:
    """Band, scale, heads, dtype and guards of a candidate whose walks are over."""
    findings = candidate.findings
    if candidate.anchor in context.nested:
        findings.no(
            Reason.REGION, "inside torch.func.grad, jvp or vmap, where an operator does not nest", candidate.anchor
        )
    if context.refusal is not None:
        findings.no(Reason.REGION, context.refusal, candidate.anchor)
    if not candidate.complete:
        _guard(candidate, context, None, masks.Seen())
        return Verdict(candidate, None, None)
    assert candidate.q is not None
    assert candidate.k is not None
    assert candidate.v is not None
    assert candidate.out is not None
    candidate.chain.sort(key=context.positions.__getitem__)
    undo_repeats(candidate)
    split = split_heads(candidate)
    seen = masks.resolve(candidate, context.reader, split.batch, context.options.key_padding)
    dtype = choose_dtype(candidate)
    scale = resolve_scale(candidate, candidate.q.size(INNER))
    for no in region_changes(candidate, _reads(candidate, scale), context.positions):
        findings.add(no)
    for link in candidate.chain:
        if link.kwargs.get("out") is not None:
            findings.no(Reason.MUTATION, f"{spelling(link)} `{link.name}` writes its result into `out`", link)
    assumed = _guard(candidate, context, dtype, seen)
    spec = _spec(candidate, dtype, scale, seen)
    if spec is not None and not findings.rejections:
        slower = preference.slower_than_stock(candidate, spec, context.options)
        if slower is not None:
            findings.no(slower.reason, slower.message, candidate.anchor)
    if findings.rejections or spec is None:
        return Verdict(candidate, spec, None)
    q, v = candidate.q, candidate.v
    match = Match(
        candidate.anchor, spec, q, candidate.k, v, candidate.lead, candidate.row, candidate.key, split,
        candidate.grouped, scale.on_q, (q.size(INNER), v.size(VALUE), *scale.specialised, *assumed, *seen.assumed),
        seen.key_mask, seen.empty_rows, candidate.out, candidate.out_axes, tuple(candidate.chain),
        is_written(candidate.out),
    )  # fmt: skip
    return Verdict(candidate, spec, match)


def _reads(candidate: Candidate, scale: Scale) -> list[Node]:
    """The nodes that the operator reads where the output stands."""
    operands = [operand.node for operand in (candidate.q, candidate.k, candidate.v) if operand is not None]
    factors = [factor.operand for factor in scale.on_q if isinstance(factor.operand, Node)]
    return operands + factors


def _guard(candidate: Candidate, context: Context, dtype: torch.dtype | None, seen: masks.Seen) -> list[Any]:
    """Adds the noes of all guards; returns the equalities that they assume."""
    facts = guards.Known(
        candidate, context.options, context.device_types, dtype, seen.band.lower is not None,
        seen.band.upper is not None, seen.key_mask is not None,
    )  # fmt: skip
    for no in guards.rejections(facts):
        candidate.findings.no(no.reason, no.message, candidate.anchor)
    return facts.assumed


def _spec(candidate: Candidate, dtype: torch.dtype, scale: Scale, seen: masks.Seen) -> AttentionSpec | None:
    assert candidate.q is not None
    assert candidate.k is not None
    assert candidate.v is not None
    qk_head_dim, v_head_dim = hint(candidate.q.size(INNER)), hint(candidate.v.size(VALUE))
    if qk_head_dim is None or v_head_dim is None:
        return None
    split = split_heads(candidate)
    batch, heads, kv_heads = _sizes(candidate, split)
    return AttentionSpec(
        batch, heads, kv_heads, candidate.q.size(candidate.row), candidate.k.size(candidate.key),
        int(qk_head_dim), int(v_head_dim), dtype, value(candidate.out).device, scale.number, seen.band,
        seen.key_mask is not None,
    )  # fmt: skip


def _sizes(candidate: Candidate, split: HeadSplit) -> tuple[Any, Any, Any]:
    """Batch, query heads and key heads."""
    assert candidate.k is not None
    lead = candidate.lead
    batch, heads = prod(lead[: split.batch]), prod(lead[split.batch :])
    if not split.kv:
        return batch, heads, 1
    kv_heads = candidate.k.size(split.batch) if candidate.grouped else lead[split.batch]
    return batch, heads, kv_heads

"""In which dtype the fused operator computes, so that nothing gets less precise than eager.

Knows nothing of kernels.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from ..errors import Reason
from .axes import Operand, read_through
from .candidate import Candidate
from .canonical import Op, canonical, spelling
from .nodes import value
from .signatures import given

_HALVES = (torch.float16, torch.bfloat16)
_FLOATS = (torch.float32, *_HALVES)


def choose_dtype(candidate: Candidate) -> torch.dtype:
    """The dtype of the output. q and k lose casts to float32 that the kernel makes anyway; under autocast they are
    cast down, as eager does. Declines CAST when q and k would be rounded where eager does not round them, and when
    eager rounds scores or weights where the kernel does not.
    """
    assert candidate.q is not None
    assert candidate.k is not None
    assert candidate.out is not None
    dtype: torch.dtype = value(candidate.out).dtype
    if dtype not in _FLOATS:
        return dtype
    scores_dtype = value(candidate.chain[0]).dtype
    candidate.q = _without_upcast(candidate, candidate.q, dtype)
    candidate.k = _without_upcast(candidate, candidate.k, dtype)
    if scores_dtype not in _FLOATS:
        text = f"the scores are computed in {scores_dtype}; kernels have float32, float16 and bfloat16"
        candidate.findings.no(Reason.DTYPE, text, candidate.chain[0])
    own = {value(operand.node).dtype for operand in (candidate.q, candidate.k)}
    if dtype in _HALVES and scores_dtype != dtype and own != {dtype}:
        text = f"the scores are computed in {scores_dtype}, the output in {dtype}: q and k would be rounded"
        candidate.findings.no(Reason.CAST, text, candidate.chain[0])
    _check_rounding(candidate, {torch.float32, dtype, *own})
    return dtype


def _check_rounding(candidate: Candidate, allowed: set[torch.dtype]) -> None:
    """Scores and weights stay in float32 or in a dtype that q, k or the output have: any other one shows in the
    numbers.
    """
    for link in candidate.chain:
        example = value(link)
        if isinstance(example, torch.Tensor) and example.dtype not in allowed:
            text = f"{spelling(link)} `{link.name}` computes in {example.dtype}; kernels keep scores in float32"
            candidate.findings.no(Reason.CAST, text, link)
            return


def _without_upcast(candidate: Candidate, operand: Operand, dtype: torch.dtype) -> Operand:
    """The operand before `.float()`, if it was of the output's dtype there; views above the cast are kept."""

    def widens(node: Node) -> bool:
        return canonical(node) is Op.CAST and value(node).dtype is torch.float32 and _same_but_dtype(node, dtype)

    beneath, casts = read_through(operand, widens)
    if not casts or dtype not in _HALVES:
        return operand
    candidate.copies += casts
    return beneath


def _same_but_dtype(cast: Node, dtype: torch.dtype) -> bool:
    source = value(given(cast, "input"))
    return bool(source.dtype == dtype and source.device == value(cast).device)

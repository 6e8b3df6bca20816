"""In which dtype the fused operator computes, so that nothing gets less precise than eager.

Knows nothing of kernels.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.fx import Node

from ..errors import Reason
from .axes import Operand, without_permutes
from .candidate import Candidate
from .canonical import Op, canonical
from .nodes import argument, is_tensor, value

_HALVES = (torch.float16, torch.bfloat16)
_FLOATS = (torch.float32, *_HALVES)


def choose_dtype(candidate: Candidate) -> torch.dtype:
    """The dtype of the output. q and k lose casts to float32 that the kernel makes anyway; under autocast they are
    cast down,
    as eager does. Declines CAST when q and k would be rounded where eager does not round them.
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
    for operand in (candidate.q, candidate.k):
        own = value(operand.node).dtype
        if own != dtype and scores_dtype != dtype and dtype in _HALVES:
            text = (
                f"the scores are computed in {scores_dtype} from {own}, the output in {dtype}: q and k would be rounded"
            )
            candidate.findings.no(Reason.CAST, text, operand.node)
            break
    return dtype


def _without_upcast(candidate: Candidate, operand: Operand, dtype: torch.dtype) -> Operand:
    """The operand before `.float()`, if it was of the output's dtype there; views above the cast are kept."""
    beneath = without_permutes(operand)
    cast = beneath.node
    if canonical(cast) is not Op.CAST or value(cast).dtype != torch.float32 or dtype not in _HALVES:
        return operand
    source: Node = argument(cast, 0, "input", "self")
    if not is_tensor(source) or value(source).dtype != dtype or value(source).device != value(cast).device:
        return operand
    candidate.copies.append(cast)
    return replace(beneath, node=source)

"""The one scale of the scores, out of all factors on the way.

What is no number when the graph is compiled goes onto q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols

from ..errors import Reason
from .candidate import Candidate, Factor
from .nodes import hint, is_tensor, known, shape, value


@dataclass(frozen=True)
class Scale:
    """number: the operator's scale. on_q: factors that q is multiplied with or divided by, so their gradients survive.

    specialised: symbolic numbers whose value is baked into `number`; the rewrite guards on them.
    """

    number: float
    on_q: tuple[Factor, ...] = ()
    specialised: tuple[Any, ...] = ()


def resolve_scale(candidate: Candidate, head_dim: Any) -> Scale:
    """All factors of the candidate as one Scale. head_dim: of q, perhaps symbolic; numbers that depend on it alone
    are baked in.
    """
    number = 1.0
    on_q: list[Factor] = []
    specialised: list[Any] = []
    if candidate.default_scale:
        number /= math.sqrt(hint(head_dim)) if hint(head_dim) else 1.0
    for factor in candidate.factors:
        constant = _constant(factor.operand, head_dim, specialised)
        if constant is not None:
            if not math.isfinite(constant) or constant == 0.0:
                text = f"the scores are {'divided by' if factor.divides else 'multiplied with'} {constant}"
                candidate.findings.no(Reason.SCALE, text, factor.node)
            else:
                number = number / constant if factor.divides else number * constant
        elif _is_one_number(factor.operand):
            on_q.append(factor)
        else:
            _reject(candidate, factor)
    if not math.isfinite(number):
        candidate.findings.no(Reason.SCALE, f"the scale is {number}; it must be finite", candidate.anchor)
    return Scale(number, tuple(on_q), tuple(specialised))


def _constant(operand: Any, head_dim: Any, specialised: list[Any]) -> float | None:
    """The number that the operand is, if it is one now: a constant, or an expression in the head dim."""
    symbolic = value(operand) if isinstance(operand, Node) else operand
    if isinstance(symbolic, (torch.SymInt, torch.SymFloat)):
        if free_unbacked_symbols(symbolic) or not free_symbols(symbolic) <= free_symbols(head_dim):
            return None
        specialised.append(symbolic)
        number = hint(symbolic)
        return None if number is None else float(number)
    if isinstance(symbolic, (int, float)) and not isinstance(symbolic, bool):
        return float(symbolic)
    return None


def _is_one_number(operand: Any) -> bool:
    example = value(operand)
    if isinstance(example, torch.Tensor):
        if not all(known(size == 1) for size in example.shape):
            return False
        return example.dtype.is_floating_point or example.dtype in (torch.int32, torch.int64)
    return isinstance(example, (torch.SymInt, torch.SymFloat))


def _reject(candidate: Candidate, factor: Factor) -> None:
    if is_tensor(factor.operand):
        sizes = "(" + ", ".join(map(str, shape(factor.operand))) + ")"
        text = f"the scale is a tensor of shape {sizes}, so it may differ by head, query or key; it must be one number"
    else:
        text = f"the scale {factor.operand!r} is no number"
    candidate.findings.no(Reason.SCALE, text, factor.node)

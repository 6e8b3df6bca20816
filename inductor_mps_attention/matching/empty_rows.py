"""What eager gives in a row that sees no key, by the spelling of the mask. Knows nothing of kernels, which give 0.

The fill decides the value: -inf makes NaN, the most negative number makes all scores of the row equal, so the row is
the mean of v over all keys, hidden ones included. How the fill came into the scores decides the gradient: a sum
passes it on to q and k, a choice (masked_fill, where) does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import torch

from .bands import ProvedBand, Unknown
from .candidate import Candidate, MaskTerm


class EmptyRows(Enum):
    """The value, and whose gradients come out of such a row."""

    ZERO = "zero"
    NAN = "NaN, in the gradient of v too"
    NAN_THROUGH_SCORES = "NaN, in all gradients"
    MEAN = "the mean of v"
    MEAN_THROUGH_SCORES = "the mean of v, with the gradients of a softmax of equal scores"


@dataclass(frozen=True)
class ProvedTerm:
    """A mask that hides keys: the band that it is proved to be, and what that does to the scores.

    fill: what hidden scores become, or what is added to them. after: what they are multiplied with behind the mask.
    dtype: in which the mask meets the scores.
    """

    term: MaskTerm
    band: ProvedBand
    fill: float
    after: float
    dtype: torch.dtype


def empty_rows_of(candidate: Candidate, terms: list[ProvedTerm]) -> EmptyRows:
    """Raises Unknown where the masks together give something else."""
    fill, added = terms[0].fill, _is_added(candidate, terms[0])
    if any(found.fill != fill or _is_added(candidate, found) != added for found in terms):
        raise Unknown("keys are hidden in several ways, so rows that see no key may be neither NaN nor a mean")
    if fill == -math.inf:
        return EmptyRows.NAN_THROUGH_SCORES if added else EmptyRows.NAN
    least = torch.finfo(terms[0].dtype).min
    if any(fill * found.after < least for found in terms) or (added and len(terms) > 1):
        raise Unknown(f"{fill:g} hides keys more than once or before a scale, and overflows in rows that see no key")
    if not added:
        return EmptyRows.MEAN
    if terms[0].dtype is torch.float16:
        raise Unknown(f"{fill:g} is added in float16, so rows that see no key still tell the scores apart")
    return EmptyRows.MEAN_THROUGH_SCORES


def _is_added(candidate: Candidate, found: ProvedTerm) -> bool:
    """Is the fill added to the scores? SDPA and the leaf turn a boolean mask into a float one."""
    return found.term.mode == "add" or candidate.kind != "manual"

"""The masks of one attention as one band and a key mask, by symbolic proof; or why not. Knows nothing of kernels.

Hiding a key is the same function however it is spelled only as long as every query sees some key; what a row that
sees none gives depends on the spelling (empty_rows.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch.fx import Node

from ..errors import Reason
from ..spec import FULL, Band
from .bands import MaskReader, ProvedBand, Unknown
from .bands.recognise import Role
from .biases import bias
from .candidate import Candidate, MaskTerm
from .empty_rows import EmptyRows, ProvedTerm, empty_rows_of
from .key_masks import KeyMask, key_mask_of
from .nodes import Size, input_name, inputs_beneath, is_tensor, value

_PADDING = "is a band and key padding from `{inputs}`; attention.key_padding=True (Options.key_padding) fuses it"


@dataclass(frozen=True)
class Seen:
    """Which keys each query sees. assumed: conditions on sizes that hold for this example, to be guarded on.

    empty_rows: what eager gives in a row that sees no key, where there may be one.
    """

    band: Band = FULL
    key_mask: KeyMask | None = None
    empty_rows: EmptyRows = EmptyRows.ZERO
    assumed: tuple[Any, ...] = ()


def resolve(candidate: Candidate, reader: MaskReader, batch_axes: int, key_padding: bool) -> Seen:
    """The intersection of all masks. What is not proved is declined, and counts as no mask for what follows.

    batch_axes: how many of the lead axes are batch; the others are heads.
    """
    terms = [found for term in candidate.masks if (found := _proved_or_declined(candidate, term, reader)) is not None]
    bands = [found.band for found in terms]
    if candidate.is_causal:
        bands.append(ProvedBand(None, sympy.Integer(0), -math.inf, True))
    if not bands:
        return Seen()  # data-dependent lengths, of which nothing could be proved, do no harm then
    whole, full_where = reader.intersection(bands, *_lengths(candidate))
    band = Band(reader.size(whole.lower), reader.size(whole.upper))
    assumed = tuple(reader.condition(found.where) for found in bands if found.where != sympy.true)
    if not terms:
        return Seen(band)
    if whole.key_atoms and not key_padding:
        inputs = ", ".join(sorted({name for atom in whole.key_atoms for name in inputs_beneath(atom.node)}))
        text = f"the mask {_names(terms)} {_PADDING.format(inputs=inputs)}"
        candidate.findings.no(Reason.MASK, text, terms[0].term.node)
        return Seen(band)
    try:
        key_mask = key_mask_of(candidate, terms, batch_axes) if whole.key_atoms else None
        return _with_empty_rows(candidate, reader, Seen(band, key_mask, assumed=assumed), terms, full_where)
    except Unknown as unknown:
        candidate.findings.no(Reason.MASK, f"the mask {_names(terms)} is not fused: {unknown}", terms[0].term.node)
        return Seen(band)


def _with_empty_rows(
    candidate: Candidate, reader: MaskReader, seen: Seen, terms: list[ProvedTerm], full_where: sympy.Basic
) -> Seen:
    """What becomes of rows that see no key: there are none, or zero is right, or they are filled in afterwards."""
    if candidate.zero_rows and all(found.fill == -math.inf for found in terms):
        return seen
    if seen.key_mask is not None:
        return replace(seen, empty_rows=empty_rows_of(candidate, terms))
    if full_where == sympy.true:
        return seen
    condition = reader.condition(full_where)
    if condition is None:
        gives = "NaN" if any(found.fill == -math.inf for found in terms) else "a mean over all keys"
        raise Unknown(f"rows may see no key, which gives {gives}; a kernel gives 0")
    return replace(seen, assumed=(*seen.assumed, condition))


def _proved_or_declined(candidate: Candidate, term: MaskTerm, reader: MaskReader) -> ProvedTerm | None:
    """None where it is declined, or hides nothing."""
    try:
        band = _prove(candidate, term, reader)
        if band.fill is None:
            return None
        fill = band.fill if term.mode == "add" else reader.number(term.fill)
        return _checked(candidate, term, band, fill)
    except Unknown as unknown:
        added = bias(term.mask) if term.mode == "add" else None
        text = f"the mask {_names([term])} is not proved to be a band: {unknown}"
        if added is not None:
            text = f"{_names([term])}, {added}, is added to the scores; kernels hide keys and add nothing"
        candidate.findings.no(Reason.MASK, text, term.node)
        return None


def _names(terms: Iterable[ProvedTerm | MaskTerm]) -> str:
    masks = (found.term.mask if isinstance(found, ProvedTerm) else found.mask for found in terms)
    names = (input_name(mask) if isinstance(mask, Node) else str(mask) for mask in masks)
    return " and ".join(dict.fromkeys(f"`{name}`" for name in names))


def _prove(candidate: Candidate, term: MaskTerm, reader: MaskReader) -> ProvedBand:
    if not is_tensor(term.mask):
        raise Unknown("a mask that is no tensor")
    if term.mode == "add" and value(term.mask).dtype is torch.bool:
        raise Unknown("booleans added to the scores")
    roles = tuple(_role(candidate, axis) for axis in term.axes)
    question = (term.mask, term.mode, roles, *_lengths(candidate))
    try:
        return reader.band(*question, keep_inputs=True)
    except Unknown:
        # Without atoms the answer names the input, if that is what stands in the way.
        reader.band(*question, keep_inputs=False)
        raise


def _lengths(candidate: Candidate) -> tuple[Size, Size]:
    assert candidate.q is not None
    assert candidate.k is not None
    return candidate.q.size(candidate.row), candidate.k.size(candidate.key)


def _role(candidate: Candidate, axis: int) -> Role:
    if axis == candidate.row:
        return "query"
    return "key" if axis == candidate.key else "lead"


def _checked(candidate: Candidate, term: MaskTerm, band: ProvedBand, fill: float) -> ProvedTerm:
    """Raises Unknown unless a hidden score is as good as not there, beside one that is seen."""
    after, dtype = _scale_after(candidate, term), _dtype_of(candidate, term)
    if after is None or after <= 0:
        raise Unknown("a scale behind it that is not proved to be positive")
    least = torch.finfo(dtype).min
    if not (fill == -math.inf or fill * min(after, 1.0) <= least / 2):
        raise Unknown(f"a fill of {fill}, with which hidden keys still count; the limit is {least / 2:g} or -inf")
    return ProvedTerm(term, band, fill, after, dtype)


def _dtype_of(candidate: Candidate, term: MaskTerm) -> torch.dtype:
    """The dtype in which the mask meets the scores."""
    dtype: torch.dtype = value(term.node).dtype if candidate.kind == "manual" else value(term.mask).dtype
    return dtype if dtype.is_floating_point else torch.float32


def _scale_after(candidate: Candidate, term: MaskTerm) -> float | None:
    """What hidden scores are multiplied with after the mask; None if it is no number."""
    if candidate.kind != "manual":
        return 1.0
    place, product = candidate.chain.index(term.node), 1.0
    for factor in candidate.factors:
        if candidate.chain.index(factor.node) < place:
            continue
        if isinstance(factor.operand, bool) or not isinstance(factor.operand, (int, float)) or not factor.operand:
            return None
        product = product / factor.operand if factor.divides else product * factor.operand
    return product

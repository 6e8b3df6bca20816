"""The masks of one attention as one band, by symbolic proof; or why not. Knows nothing of kernels.

Hiding a key is the same function however it is spelled only as long as every query sees some key: an empty row gives
zero in SDPA, NaN in a hand-written softmax with -inf, and a mean over all keys with a finite fill. So what a hand-
written mask hides is fused only with a proof that all rows are full.
"""

from __future__ import annotations

import math
from typing import Any

import sympy
import torch
from torch.fx import Node

from ..errors import Reason
from ..spec import CAUSAL, FULL, Band, Size
from .bands import MaskReader, ProvedBand, Unknown
from .bands.recognise import Role
from .candidate import Candidate, MaskTerm
from .nodes import input_name, inputs_beneath, is_tensor, value

_PADDING = (
    "is a band and key padding from `{inputs}`; no kernel reads a key mask, so drop a mask that hides nothing,"
    " or pack sequences of one length"
)


def resolve(candidate: Candidate, reader: MaskReader, key_padding: bool) -> Band:
    """The intersection of all masks. What is not proved is declined, and counts as no mask for what follows."""
    bands = [CAUSAL] if candidate.is_causal else []
    proved = []
    for term in candidate.masks:
        band = _proved_or_declined(candidate, term, reader, key_padding)
        if band is not None:
            proved.append(band)
    hiding = [band for band in proved if band.lower is not None or band.upper is not None]
    if len(hiding) > 1:
        candidate.findings.no(Reason.MASK, f"{len(hiding)} masks hide keys; at most 1 is followed", candidate.anchor)
    bands += [Band(_size(band.lower, candidate), _size(band.upper, candidate)) for band in hiding[:1]]
    return bands[0] if bands else FULL


def _proved_or_declined(
    candidate: Candidate, term: MaskTerm, reader: MaskReader, key_padding: bool
) -> ProvedBand | None:
    try:
        return _prove(candidate, term, reader, key_padding)
    except Unknown as unknown:
        text = f"the mask `{_name(term)}` is not proved to be a band: {unknown}"
        candidate.findings.no(Reason.MASK, text, term.node)
        return None


def _name(term: MaskTerm) -> str:
    return input_name(term.mask) if isinstance(term.mask, Node) else str(term.mask)


def _prove(candidate: Candidate, term: MaskTerm, reader: MaskReader, key_padding: bool) -> ProvedBand:
    if not is_tensor(term.mask):
        raise Unknown("a mask that is no tensor")
    if term.mode == "add" and value(term.mask).dtype is torch.bool:
        raise Unknown("booleans added to the scores")
    assert candidate.q is not None
    assert candidate.k is not None
    roles = tuple(_role(candidate, axis) for axis in term.axes)
    queries, keys = candidate.q.size(candidate.row), candidate.k.size(candidate.key)
    try:
        band = reader.band(term.mask, term.mode, roles, queries, keys, keep_inputs=True)
    except Unknown:
        # Without atoms the answer names the input, if that is what stands in the way.
        reader.band(term.mask, term.mode, roles, queries, keys, keep_inputs=False)
        raise
    if band.key_atoms:
        _decline_padding(candidate, term, band, key_padding)
        return band
    if band.fill is None:
        return band
    fill = band.fill if term.mode == "add" else reader.number(term.fill)
    _check_fill(candidate, term, fill, band.full_rows)
    return band


def _role(candidate: Candidate, axis: int) -> Role:
    if axis == candidate.row:
        return "query"
    return "key" if axis == candidate.key else "lead"


def _decline_padding(candidate: Candidate, term: MaskTerm, band: ProvedBand, key_padding: bool) -> None:
    inputs = ", ".join(sorted({name for atom in band.key_atoms for name in inputs_beneath(atom.node)}))
    reason = Reason.KEY_MASK if key_padding else Reason.MASK
    candidate.findings.no(reason, f"the mask `{_name(term)}` " + _PADDING.format(inputs=inputs), term.node)


def _check_fill(candidate: Candidate, term: MaskTerm, fill: float, full_rows: bool) -> None:
    """Is a hidden score as good as not there?"""
    after = _scale_after(candidate, term)
    if after is None or after <= 0:
        raise Unknown("a scale behind it that is not proved to be positive")
    dtype = value(term.node).dtype if candidate.kind == "manual" else value(term.mask).dtype
    least = torch.finfo(dtype if dtype.is_floating_point else torch.float32).min
    if not (fill == -math.inf or fill * min(after, 1.0) <= least / 2):
        raise Unknown(f"a fill of {fill}, with which hidden keys still count; the limit is {least / 2:g} or -inf")
    if full_rows or (candidate.zero_rows and fill == -math.inf):
        return
    empty = "NaN" if fill == -math.inf else "a mean over all keys"
    raise Unknown(f"rows that may see no key, which give {empty}; a kernel gives 0")


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


def _size(bound: sympy.Expr | None, candidate: Candidate) -> Size | None:
    """A bound as a number or a SymInt."""
    if bound is None:
        return None
    if bound.is_Integer:
        return int(bound)
    shape_env = _shape_env(candidate)
    hints = {symbol: shape_env.size_hint(symbol) for symbol in bound.free_symbols}
    size: Size = shape_env.create_symintnode(bound, hint=int(bound.xreplace(hints)))
    return size


def _shape_env(candidate: Candidate) -> Any:
    assert candidate.q is not None
    assert candidate.k is not None
    for operand in (candidate.q, candidate.k):
        for size in value(operand.node).shape:
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    raise Unknown("a bound with symbols of no size of q or k")

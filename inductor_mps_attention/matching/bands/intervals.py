"""A formula over query index i and key index j -> one interval of j - i, or Unknown. Knows nothing of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from .formulas import ONE, ZERO, AllOf, AnyOf, AtLeastZero, Formula, FromInput, Prover, Unknown, need

Bound = Any  # sympy.Expr | None; sympy has no types
Interval = tuple[Bound, Bound]
_MAX_CLAUSES = 32


@dataclass(frozen=True)
class Place:
    """Where a dim of a key mask is read: at the scores' index in dim `axis` plus `offset`, or always at `offset`."""

    axis: int | None
    offset: sympy.Expr


@dataclass(frozen=True)
class KeyAtom:
    """A boolean tensor of an input's making that says which keys are seen, hidden where `negated`.

    places: where each of its dims is read. The axes are dims of the scores, none of them that of the queries.
    """

    node: Any
    places: tuple[Place, ...]
    negated: bool


@dataclass(frozen=True)
class ProvedBand:
    """Key j is seen from query i iff `lower <= j - i <= upper`, and all of `key_atoms` hold. None is unbounded.

    fill: what hidden scores become, or what is added to them; None if nothing is hidden. full_rows: every query
    is proved to see a key. where: the condition on integers of the program under which all of this is so.
    """

    lower: Bound
    upper: Bound
    fill: float | None
    full_rows: bool
    key_atoms: tuple[KeyAtom, ...] = ()
    where: sympy.Basic = sympy.true


def band_of(
    prover: Prover, formula: Formula, i: sympy.Symbol, j: sympy.Symbol, fill: float, dims: dict[sympy.Symbol, int]
) -> ProvedBand:
    """The band that the formula is, for all sizes. dims: the dim of the scores that each index runs over.

    Raises Unknown if it is none or not proved to be one.
    """
    clauses = _clauses(formula)
    need(clauses, "everything is masked")
    atoms = {frozenset(part for part in clause if isinstance(part, FromInput)) for clause in clauses}
    need(len(atoms) == 1, "an input counts for some keys only")
    key_atoms = tuple(sorted((_key_atom(prover, atom, i, dims) for atom in next(iter(atoms))), key=str))
    intervals = [_interval(prover, clause, i, j) for clause in clauses]
    lower, upper = _union(prover, [interval for interval in intervals if not _is_empty(prover, interval)])
    full = not key_atoms and has_full_rows(prover, lower, upper, prover.sizes[i], prover.sizes[j])
    unmasked = lower is None and upper is None and not key_atoms
    return ProvedBand(lower, upper, None if unmasked else fill, full, key_atoms)


def _key_atom(prover: Prover, atom: FromInput, i: sympy.Symbol, dims: dict[sympy.Symbol, int]) -> KeyAtom:
    """The atom with its indices as places. Raises Unknown where it is another one in each row."""
    need(not any(i in place.free_symbols for place in atom.index), f"depends on input `{atom.node}` in each row")
    places = []
    for place in atom.index:
        symbols = [symbol for symbol in dims if symbol in place.free_symbols]
        offset = sympy.expand(place - sum(symbols))
        need(
            len(symbols) <= 1 and not prover.indices_in(offset),
            f"reads input `{atom.node}` at {place}, no index plus an offset",
        )
        places.append(Place(dims[symbols[0]] if symbols else None, offset))
    axes = [place.axis for place in places if place.axis is not None]
    need(len(axes) == len(set(axes)), f"reads a diagonal of input `{atom.node}`")
    return KeyAtom(atom.node, tuple(places), atom.negated)


def intersection(prover: Prover, bands: Sequence[ProvedBand], queries: sympy.Expr, keys: sympy.Expr) -> ProvedBand:
    """What all of the bands let through. The fill is left open: each band has its own."""
    lower = _tightest(prover, [band.lower for band in bands if band.lower is not None], 1)
    upper = _tightest(prover, [band.upper for band in bands if band.upper is not None], -1)
    atoms = tuple(dict.fromkeys(atom for band in bands for atom in band.key_atoms))
    full = not atoms and has_full_rows(prover, lower, upper, queries, keys)
    return ProvedBand(lower, upper, None, full, atoms)


def _clauses(formula: Formula) -> list[list[Any]]:
    """Disjunctive normal form."""
    if formula is True:
        return [[]]
    if formula is False:
        return []
    if isinstance(formula, (AtLeastZero, FromInput)):
        return [[formula]]
    if isinstance(formula, AnyOf):
        return [clause for part in formula.parts for clause in _clauses(part)]
    assert isinstance(formula, AllOf)
    result: list[list[Any]] = [[]]
    for part in formula.parts:
        result = [left + right for left in result for right in _clauses(part)]
        need(len(result) <= _MAX_CLAUSES, "the mask has too many cases")
    return result


def _interval(prover: Prover, clause: list[Any], i: sympy.Symbol, j: sympy.Symbol) -> Interval:
    lowers, uppers = [], []
    single = prover.sizes[i] == 1  # of a single query, j - i is j: any range of keys is a band
    for part in clause:
        if isinstance(part, FromInput):
            continue
        expression = part.expression.subs(i, 0) if single else part.expression
        if any(prover.indices_in(function) for function in expression.atoms(sympy.Function)):
            raise Unknown(f"blocks or chunks: {_plain(expression, i, j)} >= 0")
        indices = prover.indices_in(expression)
        need(indices <= {i, j}, "depends on batch or head")
        need(
            indices == ({j} if single else {i, j}),
            f"a condition on {'keys' if indices == {j} else 'queries'} alone (prefix or padding)",
        )
        slope = expression.coeff(j, 1)
        rest = sympy.expand(expression - slope * j - expression.coeff(i, 1) * i)
        steep = slope in (1, -1) and (single or expression.coeff(i, 1) == -slope)
        banded = steep and not rest.free_symbols & {i, j}
        need(banded, f"no band: {_plain(expression, i, j)} >= 0")
        if slope == 1:
            lowers.append(-rest)
        else:
            uppers.append(rest)
    return _tightest(prover, lowers, 1), _tightest(prover, uppers, -1)


def _plain(expression: sympy.Expr, i: sympy.Symbol, j: sympy.Symbol) -> sympy.Expr:
    return expression.subs({i: sympy.Symbol("i"), j: sympy.Symbol("j")})


def _tightest(prover: Prover, bounds: list[sympy.Expr], sign: int) -> Bound:
    """The largest lower bound (sign 1) or the least upper bound (-1)."""
    if not bounds:
        return None
    for bound in bounds:
        if all(prover.nonnegative(sign * (bound - other)) for other in bounds):
            return bound
    return (sympy.Max if sign == 1 else sympy.Min)(*bounds)


def _is_empty(prover: Prover, interval: Interval) -> bool:
    lower, upper = interval
    return lower is not None and upper is not None and prover.nonnegative(lower - upper - 1)


def _union(prover: Prover, intervals: list[Interval]) -> Interval:
    need(intervals, "everything is masked")
    while len(intervals) > 1:
        joined = _join_two(prover, intervals)
        need(joined is not None, "a union of several bands")
        assert joined is not None
        intervals = joined
    return intervals[0]


def _join_two(prover: Prover, intervals: list[Interval]) -> list[Interval] | None:
    """The intervals with one pair joined, if one starts inside the other or right behind it."""
    for x, (a, b) in enumerate(intervals):
        for y, (c, d) in enumerate(intervals):
            if x == y:
                continue
            reaches = b is None or c is None or prover.nonnegative(b + 1 - c)
            starts_first = a is None or (c is not None and prover.nonnegative(c - a))
            if not (reaches and starts_first):
                continue
            if b is None or d is None:
                upper: Bound = None
            elif prover.nonnegative(d - b):
                upper = d
            elif prover.nonnegative(b - d):
                upper = b
            else:
                continue
            return [other for place, other in enumerate(intervals) if place not in (x, y)] + [(a, upper)]
    return None


def _row_conditions(lower: Bound, upper: Bound, queries: sympy.Expr, keys: sympy.Expr) -> list[sympy.Expr]:
    """All of them nonnegative means that every query sees a key: the last query reaches back to the last key, the
    first one to the first key, and the band is not empty.
    """
    conditions = [keys - ONE]
    if lower is not None:
        conditions.append(keys - queries - lower)
    if upper is not None:
        conditions.append(upper)
    if lower is not None and upper is not None:
        conditions.append(upper - lower)
    return conditions


def has_full_rows(prover: Prover, lower: Bound, upper: Bound, queries: sympy.Expr, keys: sympy.Expr) -> bool:
    """Is it proved that every query sees a key?"""
    return all(map(prover.nonnegative, _row_conditions(lower, upper, queries, keys)))


def full_rows_where(prover: Prover, band: ProvedBand, queries: sympy.Expr, keys: sympy.Expr) -> sympy.Basic:
    """The condition on the sizes under which every query sees a key; what is proved of it is left out."""
    open_ones = [c for c in _row_conditions(band.lower, band.upper, queries, keys) if not prover.nonnegative(c)]
    return sympy.And(*(sympy.Ge(condition, ZERO) for condition in open_ones))

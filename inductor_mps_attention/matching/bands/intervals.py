"""A formula over query index i and key index j -> one interval of j - i, or Unknown. Knows nothing of graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from .formulas import AllOf, AnyOf, AtLeastZero, Formula, FromInput, Prover, Unknown, need

Bound = Any  # sympy.Expr | None; sympy has no types
Interval = tuple[Bound, Bound]
_MAX_CLAUSES = 32


@dataclass(frozen=True)
class ProvedBand:
    """Key j is seen from query i iff `lower <= j - i <= upper`, and all of `key_atoms` hold. None is unbounded.

    fill: what hidden scores become, or what is added to them; None if nothing is hidden. full_rows: every query
    is proved to see a key.
    """

    lower: Bound
    upper: Bound
    fill: float | None
    full_rows: bool
    key_atoms: tuple[FromInput, ...] = ()


def band_of(prover: Prover, formula: Formula, i: sympy.Symbol, j: sympy.Symbol, fill: float) -> ProvedBand:
    """The band that the formula is, for all sizes. Raises Unknown if it is none or not proved to be one."""
    clauses = _clauses(formula)
    need(clauses, "everything is masked")
    atoms = {frozenset(part for part in clause if isinstance(part, FromInput)) for clause in clauses}
    need(len(atoms) == 1, "an input counts for some keys only")
    key_atoms = tuple(sorted(next(iter(atoms)), key=str))
    for atom in key_atoms:
        by_row = any(i in place.free_symbols for place in atom.index)
        need(not atom.negated and not by_row, f"depends on input `{atom.node}` in each row")
    intervals = [_interval(prover, clause, i, j) for clause in clauses]
    lower, upper = _union(prover, [interval for interval in intervals if not _is_empty(prover, interval)])
    full = not key_atoms and _has_full_rows(prover, lower, upper, prover.sizes[i], prover.sizes[j])
    unmasked = lower is None and upper is None and not key_atoms
    return ProvedBand(lower, upper, None if unmasked else fill, full, key_atoms)


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
    for part in clause:
        if isinstance(part, FromInput):
            continue
        expression = part.expression
        if any(prover.indices_in(function) for function in expression.atoms(sympy.Function)):
            raise Unknown(f"blocks or chunks: {_plain(expression, i, j)} >= 0")
        indices = prover.indices_in(expression)
        need(indices <= {i, j}, "depends on batch or head")
        need(indices == {i, j}, f"a condition on {'keys' if indices == {j} else 'queries'} alone (prefix or padding)")
        slope = expression.coeff(j, 1)
        rest = sympy.expand(expression - slope * j - expression.coeff(i, 1) * i)
        banded = slope in (1, -1) and expression.coeff(i, 1) == -slope and not rest.free_symbols & {i, j}
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


def _has_full_rows(prover: Prover, lower: Bound, upper: Bound, queries: sympy.Expr, keys: sympy.Expr) -> bool:
    """Does every query see a key? The last query must reach back to the last key, the first one to the first key."""
    return (
        prover.nonnegative(keys - 1)
        and (lower is None or prover.nonnegative(keys - queries - lower))
        and (upper is None or prover.nonnegative(upper))
        and (lower is None or upper is None or prover.nonnegative(upper - lower))
    )

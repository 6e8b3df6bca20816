"""Conditions on integer indices and sizes, and a prover that decides them when it can.

Knows nothing of graphs or tensors.

A formula is True, False, or one of the classes below, in negation normal form. Every literal is decided at once if it
holds, or fails, for all values of the indices and sizes; so a formula that is left depends on them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

import sympy

ZERO, ONE = sympy.Integer(0), sympy.Integer(1)


class Unknown(Exception):
    """Something is not proved; the message says what."""


def need(condition: Any, why: str) -> None:
    """Raises Unknown unless the condition holds."""
    if not condition:
        raise Unknown(why)


@dataclass(frozen=True)
class AtLeastZero:
    """`expression >= 0`."""

    expression: sympy.Expr


@dataclass(frozen=True)
class FromInput:
    """An element of a boolean tensor that depends on an input of the graph: its value, or with `negated` the
    opposite.
    """

    node: Any
    index: tuple[sympy.Expr, ...]
    negated: bool = False


@dataclass(frozen=True)
class AllOf:
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class AnyOf:
    parts: tuple[Any, ...]


Formula = Union[bool, AtLeastZero, FromInput, AllOf, AnyOf]  # noqa: UP007 - a runtime alias for 3.10


class Prover:
    """Decides inequalities of indices (0 <= index < size) and sizes (ranges from the ShapeEnv). Adds no guards.

    assumed: lower bounds that symbols are taken to have; the caller guards on them. unbounded: symbols without a lower
    bound that were met, such as a window that is an argument of the user's function.
    """

    def __init__(self, shape_env: Any = None, assumed: Mapping[sympy.Symbol, int] | None = None):
        self.shape_env, self.assumed = shape_env, assumed or {}
        self.unbounded: set[sympy.Symbol] = set()
        self.sizes: dict[sympy.Symbol, sympy.Expr] = {}
        self._decided: dict[sympy.Expr, bool] = {}

    def index(self, name: str, size: sympy.Expr) -> sympy.Symbol:
        """A new index that runs over 0 .. size - 1."""
        symbol = sympy.Symbol(f"_{name}{len(self.sizes)}", integer=True)
        self.sizes[symbol] = size
        return symbol

    def indices_in(self, expression: sympy.Expr) -> set[sympy.Symbol]:
        return {symbol for symbol in expression.free_symbols if symbol in self.sizes}

    def nonnegative(self, expression: sympy.Expr) -> bool:
        """True only if the expression is >= 0 for all values of its indices and sizes."""
        expression = sympy.expand(expression)
        if expression not in self._decided:
            self._decided[expression] = self._prove(expression)
        return self._decided[expression]

    def equal(self, left: sympy.Expr, right: sympy.Expr) -> bool:
        difference = sympy.expand(left - right)
        return difference == 0 or (self.nonnegative(difference) and self.nonnegative(-difference))

    def _prove(self, expression: sympy.Expr) -> bool:
        if expression.is_number:
            return bool(expression >= 0)
        if any(self.indices_in(function) for function in expression.atoms(sympy.Function)):
            return False
        for symbol in sorted(self.indices_in(expression), key=str):
            return self._prove_at_ends(expression, symbol)
        return self._prove_by_ranges(expression) or self._prove_by_shape_env(expression)

    def _prove_at_ends(self, expression: sympy.Expr, symbol: sympy.Symbol) -> bool:
        """An affine expression is least at one end of the index's range."""
        if not expression.is_polynomial(symbol) or sympy.degree(expression, symbol) > 1:
            return False
        slope, rest = expression.coeff(symbol, 1), expression.coeff(symbol, 0)
        if self.nonnegative(slope):
            return self.nonnegative(rest)
        if self.nonnegative(-slope):
            return self.nonnegative(rest + slope * (self.sizes[symbol] - 1))
        return False

    def _prove_by_ranges(self, expression: sympy.Expr) -> bool:
        """With every size written as its bound plus something nonnegative, all coefficients are nonnegative."""
        shifted = expression
        for size in expression.free_symbols:
            low, high = self._range(size)
            excess = sympy.Symbol(f"_excess_{size}", nonnegative=True)
            if not shifted.is_polynomial(size):
                return False
            slope = shifted.coeff(size, 1)
            if high is not None and sympy.degree(shifted, size) == 1 and slope.is_number and slope < 0:
                shifted = sympy.expand(shifted.subs(size, high - excess))
            elif low is not None:
                shifted = sympy.expand(shifted.subs(size, low + excess))
            else:
                return False
        if not shifted.free_symbols:
            return bool(shifted >= 0)
        return all(coefficient >= 0 for coefficient in sympy.Poly(shifted, *shifted.free_symbols).coeffs())

    def _prove_by_shape_env(self, expression: sympy.Expr) -> bool:
        if self.shape_env is None:
            return False
        return bool(self.shape_env._maybe_evaluate_static(sympy.Ge(expression, 0)) in (True, sympy.true))

    def _range(self, size: sympy.Symbol) -> tuple[int | None, int | None]:
        known = self.shape_env.var_to_range.get(size) if self.shape_env is not None else None
        if known is None:
            return None, None

        def finite(end: Any) -> int | None:
            return int(end) if end is not None and end.is_finite and abs(end) < 2**62 else None

        low, high = finite(known.lower), finite(known.upper)
        if low is None:
            self.unbounded.add(size)
        return (self.assumed.get(size) if low is None else low), high

    # ---- formulas

    def at_least_zero(self, expression: sympy.Expr) -> Formula:
        expression = sympy.expand(expression)
        if self.nonnegative(expression):
            return True
        return False if self.nonnegative(-expression - 1) else AtLeastZero(expression)

    def compare(self, relation: str, left: sympy.Expr, right: sympy.Expr) -> Formula:
        """relation: one of lt, le, gt, ge, eq, ne."""
        if relation in ("gt", "ge"):
            return self.compare({"gt": "lt", "ge": "le"}[relation], right, left)
        if relation == "le":
            return self.at_least_zero(right - left)
        if relation == "lt":
            return self.at_least_zero(right - left - 1)
        if relation == "eq":
            return self.all_of(self.compare("le", left, right), self.compare("le", right, left))
        return self.any_of(self.compare("lt", left, right), self.compare("lt", right, left))

    def negation(self, formula: Formula) -> Formula:
        if isinstance(formula, bool):
            return not formula
        if isinstance(formula, AtLeastZero):
            return self.at_least_zero(-formula.expression - 1)
        if isinstance(formula, FromInput):
            return FromInput(formula.node, formula.index, not formula.negated)
        join = self.any_of if isinstance(formula, AllOf) else self.all_of
        return join(*(self.negation(part) for part in formula.parts))

    def all_of(self, *formulas: Formula) -> Formula:
        return self._join(AllOf, formulas, absorbing=False)

    def any_of(self, *formulas: Formula) -> Formula:
        return self._join(AnyOf, formulas, absorbing=True)

    def _join(self, kind: Any, formulas: tuple[Formula, ...], absorbing: bool) -> Formula:
        parts: list[Formula] = []
        for formula in formulas:
            for part in formula.parts if isinstance(formula, kind) else (formula,):
                if part is absorbing:
                    return absorbing
                if part is not (not absorbing) and part not in parts:
                    parts.append(part)
        if self._simplify(parts, absorbing):
            return absorbing
        if not parts:
            return not absorbing
        return parts[0] if len(parts) == 1 else kind(tuple(parts))

    def _simplify(self, parts: list[Formula], absorbing: bool) -> bool:
        """Drops literals that others make redundant; True if two of them decide the whole."""
        for one in [part for part in parts if isinstance(part, AtLeastZero)]:
            for other in [part for part in parts if isinstance(part, AtLeastZero) and part is not one]:
                a, b = one.expression, other.expression
                if self.nonnegative(b - a if absorbing else a - b):
                    parts.remove(one)
                    break
                if self.nonnegative(a + b + 1 if absorbing else -1 - a - b):
                    return True
        return False

    def substitute(self, formula: Formula, symbol: sympy.Symbol, replacement: sympy.Expr) -> Formula:
        if isinstance(formula, bool):
            return formula
        if isinstance(formula, FromInput):
            index = tuple(place.subs(symbol, replacement) for place in formula.index)
            return FromInput(formula.node, index, formula.negated)
        if isinstance(formula, AtLeastZero):
            return self.at_least_zero(formula.expression.subs(symbol, replacement))
        join = self.all_of if isinstance(formula, AllOf) else self.any_of
        return join(*(self.substitute(part, symbol, replacement) for part in formula.parts))

    def exists(self, formula: Formula, symbol: sympy.Symbol) -> bool | None:
        """Is there a value of the index that makes the formula hold, whatever the others are? None if undecided."""
        if formula is False:
            return False
        size = self.sizes[symbol]
        if formula is True:
            return True if self.nonnegative(size - 1) else None
        for witness in self._witnesses(formula, symbol):
            inside = self.nonnegative(witness) and self.nonnegative(size - 1 - witness)
            if inside and self.substitute(formula, symbol, witness) is True:
                return True
        return None

    def _witnesses(self, formula: Formula, symbol: sympy.Symbol) -> Iterator[sympy.Expr]:
        """Values worth trying: both ends, the other indices (from either end), and where a literal turns."""
        size = self.sizes[symbol]
        yield from (ZERO, size - 1)
        others = [index for index in self.sizes if index is not symbol and depends_on(formula, index)]
        yield from others
        yield from (index + size - self.sizes[index] for index in others)
        for expression in literals(formula):
            slope = expression.coeff(symbol, 1)
            if slope in (1, -1):
                yield sympy.expand(-(expression - slope * symbol) * slope)


def literals(formula: Formula) -> Iterator[sympy.Expr]:
    if isinstance(formula, AtLeastZero):
        yield formula.expression
    elif isinstance(formula, (AllOf, AnyOf)):
        for part in formula.parts:
            yield from literals(part)


def depends_on(item: Any, symbol: sympy.Symbol) -> bool:
    """Does the index occur in a formula or expression?"""
    if isinstance(item, sympy.Basic):
        return symbol in item.free_symbols
    if isinstance(item, FromInput):
        return any(symbol in place.free_symbols for place in item.index)
    if isinstance(item, AtLeastZero):
        return symbol in item.expression.free_symbols
    return isinstance(item, (AllOf, AnyOf)) and any(depends_on(part, symbol) for part in item.parts)


RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}

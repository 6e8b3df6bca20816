"""Sizes and strides as Inductor knows them -> expressions of the Metal text and the integers that a launch passes.

What is fixed becomes a literal. What depends on symbols is computed in the kernel, from the symbols, where it is a
polynomial; everything else (floors, minima) is computed by the host and passed as one integer more.
"""

from __future__ import annotations

import sympy


class IntegerArguments:
    """The integer arguments of one launch, collected while expressions are printed.

    Arguments are named by the order of their first use, not by the symbols, so that equal kernels have equal texts.
    """

    def __init__(self) -> None:
        self._names: dict[sympy.Expr, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Their names in the Metal text, in order."""
        return tuple(self._names.values())

    @property
    def expressions(self) -> tuple[sympy.Expr, ...]:
        """What the host passes, in order."""
        return tuple(self._names)

    def metal(self, expression: sympy.Expr) -> str:
        """Metal text of the same value, in 64 bits as soon as an argument is in it."""
        if isinstance(expression, sympy.Integer):
            return _literal(int(expression))
        if isinstance(expression, sympy.Add):
            return "(" + " + ".join(self.metal(term) for term in expression.args) + ")"
        if isinstance(expression, sympy.Mul):
            return " * ".join(self.metal(factor) for factor in expression.args)
        if isinstance(expression, sympy.Pow) and _is_small_power(expression):
            return " * ".join([self.metal(expression.base)] * int(expression.exp))
        return self._names.setdefault(expression, f"z{len(self._names)}")


def _is_small_power(expression: sympy.Pow) -> bool:
    return isinstance(expression.exp, sympy.Integer) and 1 <= int(expression.exp) <= 4


def _literal(value: int) -> str:
    text = str(value) if -(2**31) < value < 2**31 else f"{value}l"
    return text if value >= 0 else f"({text})"

"""Symbolic sizes in Metal text: the text computes what the host would, whatever the expression."""

from __future__ import annotations

import pytest
import sympy
from torch.utils._sympy.functions import CeilDiv, FloorDiv

from inductor_mps_attention.lowering.expressions import IntegerArguments

A, B = (sympy.Symbol(name, integer=True, positive=True) for name in ("s27", "s9"))


@pytest.mark.parametrize(
    "expression",
    [
        sympy.Integer(7),
        sympy.Integer(-3),
        sympy.Integer(2**40),
        A,
        192 * A,
        A * B + 3,
        (A + 1) * (B - 2) * 4,
        A**2 * B - 5 * A,
        FloorDiv(A, 2) * 64,
        CeilDiv(A, 32),
        sympy.Max(A - B, 3) + A,
        sympy.Mod(A, 8),
    ],
    ids=str,
)
def test_text_and_arguments_give_the_value(expression: sympy.Expr) -> None:
    arguments = IntegerArguments()
    text = arguments.metal(expression)
    host = {A: 37, B: 11}
    values = {name: int(value.subs(host)) for name, value in zip(arguments.names, arguments.expressions, strict=True)}
    assert eval(text.replace("l", ""), {}, values) == int(expression.subs(host))


def test_names_follow_first_use_and_are_shared() -> None:
    """Equal kernels of two graphs have equal texts although their symbols have other numbers."""
    first, second = IntegerArguments(), IntegerArguments()
    assert [first.metal(e) for e in (B, 2 * B, A)] == [second.metal(e) for e in (A, 2 * A, B)]
    assert first.names == second.names == ("z0", "z1")
    assert first.expressions == (B, A)


def test_large_literals_are_longs() -> None:
    assert IntegerArguments().metal(sympy.Integer(2**31)) == "2147483648l"
    assert IntegerArguments().metal(sympy.Integer(-(2**31))) == "(-2147483648l)"

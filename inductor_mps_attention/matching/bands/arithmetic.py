"""Element rules that combine values at the same index: constants, comparisons, arithmetic, logic, choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.utils._sympy.functions import FloorDiv

from ..canonical import COMPARISONS, Op, canonical, spelling
from ..nodes import argument, is_tensor, shape, source_of, value
from .elements import Elements, Index, Leaf, Value, rule
from .formulas import ONE, ZERO, need

_RELATION = {
    Op.LESS: "lt", Op.LESS_EQUAL: "le", Op.GREATER: "gt", Op.GREATER_EQUAL: "ge", Op.EQUAL: "eq", Op.NOT_EQUAL: "ne",
}  # fmt: skip
_ARITHMETIC: dict[Op, tuple[Callable[[Any, Any], Any], Callable[..., torch.Tensor]]] = {
    Op.ADD: (lambda a, b: a + b, torch.add),
    Op.SUB: (lambda a, b: a - b, torch.sub),
    Op.RSUB: (lambda a, b: b - a, torch.rsub),
    Op.MUL: (lambda a, b: a * b, torch.mul),
}


@rule(Op.ARANGE)
def arange(elements: Elements, node: Node, index: Index) -> Value:
    need(value(node).dtype is torch.int64, f"arange of {value(node).dtype}")
    positional = [item for item in node.args if item is not None]
    start, step = ZERO, ONE
    if len(positional) >= 2 or (positional and "end" in node.kwargs):
        start = elements.expression(positional[0])
    if len(positional) >= 3:
        step = elements.expression(positional[2])
    start = elements.expression(node.kwargs["start"]) if "start" in node.kwargs else start
    step = elements.expression(node.kwargs["step"]) if "step" in node.kwargs else step
    return [(True, start + step * index[0])]


@rule(Op.ZEROS, Op.ONES)
def constant(elements: Elements, node: Node, index: Index) -> Value:
    return elements.cast([(True, ONE if canonical(node) is Op.ONES else ZERO)], value(node).dtype)


@rule(Op.FULL, Op.NEW_FULL)
def full(elements: Elements, node: Node, index: Index) -> Value:
    fill = argument(node, 1 if canonical(node) is Op.FULL else 2, "fill_value")
    return elements.cast(elements.aligned(fill, (), ()), value(node).dtype)


@rule(Op.SCALAR_TENSOR)
def scalar_tensor(elements: Elements, node: Node, index: Index) -> Value:
    content = argument(node, 0, "data", "s")
    need(isinstance(content, (int, float, Node)) and not is_tensor(content), "torch.tensor of more than a number")
    need(value(node).dim() == 0, "torch.tensor of more than a number")
    return elements.cast(elements.element(content, ()), value(node).dtype)


@rule(*COMPARISONS, *_ARITHMETIC)
def binary(elements: Elements, node: Node, index: Index) -> Value:
    """Symbolic on int64 positions, else on constants, computed by torch in the operands' dtypes."""
    op, out = canonical(node), elements.sizes(node)
    dtype: torch.dtype = value(node).dtype
    left, right = argument(node, 0, "input", "self"), argument(node, 1, "other")
    need(argument(node, 2, "alpha", default=1) == 1, "alpha")
    first, second = elements.aligned(left, index, out), elements.aligned(right, index, out)
    if dtype is torch.bool and op not in _RELATION:
        need(
            op in (Op.ADD, Op.MUL) and not isinstance(first, list) and not isinstance(second, list),
            "boolean arithmetic",
        )
        join = elements.prover.any_of if op is Op.ADD else elements.prover.all_of
        return join(first, second)
    results = []
    for condition, a in elements.numbers(first):
        for other, b in elements.numbers(second):
            both = elements.prover.all_of(condition, other)
            if both is not False:
                results.append((both, _combine(elements, op, (left, right), (a, b), dtype)))
    if op not in _RELATION:
        return results
    return elements.prover.any_of(*(elements.prover.all_of(both, truth) for both, truth in results))


def _combine(elements: Elements, op: Op, operands: Sequence[Any], leaves: Sequence[Leaf], dtype: torch.dtype) -> Any:
    """A leaf, or for a comparison a formula."""
    symbolic = all(_is_position(operand, leaf) for operand, leaf in zip(operands, leaves, strict=True))
    if op in _RELATION:
        if symbolic:
            return elements.prover.compare(_RELATION[op], *leaves)
        return bool(_computed(getattr(torch, _RELATION[op]), operands, leaves, dtype))
    exact, by_torch = _ARITHMETIC[op]
    if symbolic and dtype is torch.int64:
        return sympy.expand(exact(*leaves))
    result = _computed(by_torch, operands, leaves, dtype)
    return result if isinstance(result, float) else sympy.Integer(int(result))


def _is_position(operand: Any, leaf: Leaf) -> bool:
    """An integer that torch computes in int64, or a Python or symbolic integer."""
    if not isinstance(leaf, sympy.Expr):
        return False
    return not is_tensor(operand) or value(operand).dtype in (torch.int64, torch.bool)


def _computed(
    function: Callable[..., torch.Tensor], operands: Sequence[Any], leaves: Sequence[Leaf], dtype: torch.dtype
) -> Any:
    """What torch computes from constants, with the dtypes and ranks of the operands."""
    need(all(isinstance(leaf, float) or leaf.is_number for leaf in leaves), "arithmetic on positions outside int64")
    plain = [leaf if isinstance(leaf, float) else int(leaf) for leaf in leaves]
    tensors = [
        torch.tensor(number, dtype=value(operand).dtype).reshape([1] * min(len(shape(operand)), 1))
        if is_tensor(operand)
        else number
        for operand, number in zip(operands, plain, strict=True)
    ]
    if not any(isinstance(item, torch.Tensor) for item in tensors):
        tensors[0] = torch.tensor(tensors[0])
    result = function(*tensors)
    need(result.dtype == dtype, "a dtype promotion that is not followed")
    return result.item()


@rule(Op.NEG)
def negative(elements: Elements, node: Node, index: Index) -> Value:
    dtype = value(node).dtype
    need(dtype is torch.int64 or dtype.is_floating_point, f"a negative of {dtype}")
    return [(condition, -leaf) for condition, leaf in elements.numbers(elements.element(source_of(node), index))]


@rule(Op.AND, Op.OR, Op.XOR)
def logic(elements: Elements, node: Node, index: Index) -> Value:
    prover, out = elements.prover, elements.sizes(node)
    first, second = (elements.aligned(item, index, out) for item in (source_of(node), argument(node, 1, "other")))
    if "logical" in spelling(node):
        first, second = elements.cast(first, torch.bool), elements.cast(second, torch.bool)
    need(value(node).dtype is torch.bool, "a bitwise operation on integers")
    need(not isinstance(first, list) and not isinstance(second, list), "a bitwise operation on integers")
    if canonical(node) is Op.AND:
        return prover.all_of(first, second)
    if canonical(node) is Op.OR:
        return prover.any_of(first, second)
    one, other = prover.all_of(first, prover.negation(second)), prover.all_of(prover.negation(first), second)
    return prover.any_of(one, other)


@rule(Op.NOT)
def negation(elements: Elements, node: Node, index: Index) -> Value:
    element = elements.element(source_of(node), index)
    if "logical" in spelling(node):
        element = elements.cast(element, torch.bool)
    need(not isinstance(element, list), "a bitwise operation on integers")
    return elements.prover.negation(element)


@rule(Op.WHERE, Op.MASKED_FILL)
def choice(elements: Elements, node: Node, index: Index) -> Value:
    prover, out, dtype = elements.prover, elements.sizes(node), value(node).dtype
    if canonical(node) is Op.WHERE:
        condition, chosen, other = source_of(node), argument(node, 1, "input", "self"), argument(node, 2, "other")
    else:
        condition, chosen, other = argument(node, 1, "mask"), argument(node, 2, "value"), source_of(node)
    truth = elements.aligned(condition, index, out)
    need(not isinstance(truth, list), "a condition that is not boolean")
    if_true = elements.cast(elements.aligned(chosen, index, out), dtype)
    if_false = elements.cast(elements.aligned(other, index, out), dtype)
    opposite = prover.negation(truth)
    if dtype is torch.bool:
        return prover.any_of(prover.all_of(truth, if_true), prover.all_of(opposite, if_false))
    return [(prover.all_of(truth, condition), leaf) for condition, leaf in if_true] + [
        (prover.all_of(opposite, condition), leaf) for condition, leaf in if_false
    ]


@rule(Op.TRIL, Op.TRIU)
def triangle(elements: Elements, node: Node, index: Index) -> Value:
    below = elements.expression(argument(node, 1, "diagonal", default=0)) + index[-2] - index[-1]
    kept = elements.prover.at_least_zero(below if canonical(node) is Op.TRIL else -below)
    element = elements.element(source_of(node), index)
    if not isinstance(element, list):
        return elements.prover.all_of(kept, element)
    zero: Leaf = 0.0 if value(node).dtype.is_floating_point else ZERO
    cases = [(elements.prover.all_of(kept, condition), leaf) for condition, leaf in element]
    return [*cases, (elements.prover.negation(kept), zero)]


@rule(Op.ABS, Op.RELU)
def magnitude(elements: Elements, node: Node, index: Index) -> Value:
    need(value(node).dtype is torch.int64, f"{spelling(node)} of {value(node).dtype}")
    prover, cases = elements.prover, []
    for condition, leaf in elements.numbers(elements.element(source_of(node), index)):
        cases.append((prover.all_of(condition, prover.at_least_zero(leaf)), leaf))
        negative_leaf = -leaf if canonical(node) is Op.ABS else ZERO
        cases.append((prover.all_of(condition, prover.at_least_zero(-leaf - 1)), negative_leaf))
    return cases


@rule(Op.CLAMP, Op.CLAMP_MIN, Op.CLAMP_MAX)
def clamp(elements: Elements, node: Node, index: Index) -> Value:
    need(value(node).dtype is torch.int64, f"{spelling(node)} of {value(node).dtype}")
    op, out, prover = canonical(node), elements.sizes(node), elements.prover
    low = argument(node, 1, "min", "other") if op in (Op.CLAMP, Op.CLAMP_MIN) else None
    high = argument(node, 2, "max") if op is Op.CLAMP else None
    high = argument(node, 1, "max", "other") if op is Op.CLAMP_MAX else high
    cases = elements.numbers(elements.aligned(source_of(node), index, out))
    for limit, sign in ((low, 1), (high, -1)):
        if limit is None:
            continue
        bounds = elements.numbers(elements.aligned(limit, index, out))
        cases = [
            case
            for condition, leaf in cases
            for other, bound in bounds
            for case in (
                (prover.all_of(condition, other, prover.at_least_zero(sign * (leaf - bound))), leaf),
                (prover.all_of(condition, other, prover.at_least_zero(sign * (bound - leaf) - 1)), bound),
            )
        ]
    return cases


@rule(Op.FLOOR_DIVIDE, Op.REMAINDER, Op.DIV)
def division(elements: Elements, node: Node, index: Index) -> Value:
    op = canonical(node)
    need(op is not Op.DIV or argument(node, 2, "rounding_mode") == "floor", "a division with a remainder")
    need(value(node).dtype is torch.int64, f"a division of {value(node).dtype}")
    divisor = argument(node, 1, "other")
    need(not is_tensor(divisor), "a division by a tensor")
    by = elements.expression(divisor)
    need(by.is_number and by > 0, f"a division by {by}")
    cases = elements.numbers(elements.aligned(source_of(node), index, elements.sizes(node)))
    if op is Op.REMAINDER:
        return [(condition, leaf - by * FloorDiv(leaf, by)) for condition, leaf in cases]
    return [(condition, FloorDiv(leaf, by)) for condition, leaf in cases]

"""A symbolic size as an argument of a graph node: nodes that compute it from the sizes of tensors at hand."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

import sympy
import torch
from torch.fx import Node
from torch.utils._sympy.functions import FloorDiv, Max, Min

from ..spec import Size
from .nodes import is_tensor, shape, value

if TYPE_CHECKING:
    from .builder import Builder


class NotComputable(Exception):
    """No tensor at hand has the symbols of this size."""


def bound(builder: Builder, size: Size, tensors: Iterable[Node]) -> int | Node:
    """`size` as a number or a node. tensors: where its symbols are looked for, before the graph's inputs.

    Raises NotComputable when a symbol is no size of any of them.
    """
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_Integer:
        return int(expression)
    return _Writer(builder, list(tensors)).write(expression)


class _Writer:
    def __init__(self, builder: Builder, tensors: list[Node]):
        self.builder, self.tensors = builder, tensors

    def write(self, expression: sympy.Expr) -> int | Node:
        if expression.is_Integer:
            return int(expression)
        whole = self._size_that_is(expression)
        if whole is not None:
            return whole
        if isinstance(expression, (sympy.Add, sympy.Mul)):
            target = operator.add if isinstance(expression, sympy.Add) else operator.mul
            parts = [self.write(argument) for argument in expression.args]
            return reduce(lambda left, right: self._call(target, left, right), parts)
        if isinstance(expression, FloorDiv):
            return self._call(operator.floordiv, *(self.write(argument) for argument in expression.args))
        if isinstance(expression, (sympy.Max, sympy.Min, Max, Min)):
            pick = torch.sym_max if isinstance(expression, (sympy.Max, Max)) else torch.sym_min
            parts = [self.write(argument) for argument in expression.args]
            return reduce(lambda left, right: self._call(pick, left, right), parts)
        raise NotComputable(f"no tensor at hand has the size {expression}")

    def _call(self, target: object, left: int | Node, right: int | Node) -> int | Node:
        if isinstance(left, int) and isinstance(right, int):
            return int(target(left, right))  # type: ignore[operator]
        return self.builder.call(target, left, right)  # type: ignore[arg-type]

    def _size_that_is(self, expression: sympy.Expr) -> int | Node | None:
        for node in self.tensors:
            for dim, size in enumerate(shape(node)):
                if isinstance(size, torch.SymInt) and size.node.expr == expression:
                    return self.builder.size(node, dim)
        for node in self.builder.graph.find_nodes(op="placeholder"):
            example: object = value(node)
            if isinstance(example, torch.SymInt) and example.node.expr == expression:
                placeholder: Node = node
                return placeholder
            if is_tensor(node):
                for dim, size in enumerate(shape(node)):
                    if isinstance(size, torch.SymInt) and size.node.expr == expression:
                        return self.builder.size(node, dim)
        return None

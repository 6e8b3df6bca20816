"""A product of two tensors, in one form: matmul, bmm, baddbmm with beta 0, einsum with any letters.

Knows nothing of attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from .axes import Operand
from .canonical import PRODUCTS, Op, canonical
from .nodes import argument, is_tensor, shape


@dataclass(frozen=True)
class Product:
    """out[axes 0..r-1] = alpha * sum over the contracted axes of left * right.

    Axes are numbered by the output's dims; contracted ones get numbers from `len(out)` on. `alpha` is a number or a
    node.
    """

    node: Node
    left: Operand
    right: Operand
    rank: int
    alpha: Any = 1.0

    @property
    def contracted(self) -> set[int]:
        return {axis for axis in (*self.left.axes, *self.right.axes) if axis >= self.rank}


class NotAProduct(Exception):
    """This spelling of a product is not understood; the message says why."""


def is_product(node: Node) -> bool:
    return canonical(node) in PRODUCTS


def product(node: Node) -> Product:
    """The product that `node` computes. Raises NotAProduct for a form that is not a plain product of two tensors."""
    if node.kwargs.get("out") is not None:
        raise NotAProduct("the product writes into out=")
    op = canonical(node)
    if op is Op.EINSUM:
        return _einsum(node)
    if op is Op.BADDBMM:
        if argument(node, 3, "beta", default=1) != 0:
            raise NotAProduct("baddbmm adds its input, beta is not 0")
        left, right = argument(node, 1, "batch1"), argument(node, 2, "batch2")
        return _matmul(node, left, right, argument(node, 4, "alpha", default=1.0))
    left = argument(node, 0, "input", "self")
    right = argument(node, 1, "other", "mat2", "tensor2")
    if str(node.target) == "__rmatmul__":
        left, right = right, left
    return _matmul(node, left, right)


def _matmul(node: Node, left: Node, right: Node, alpha: Any = 1.0) -> Product:
    if not (is_tensor(left) and is_tensor(right)):
        raise NotAProduct("an operand is not a tensor")
    rank, left_rank, right_rank = len(shape(node)), len(shape(left)), len(shape(right))
    if min(rank, left_rank, right_rank) < 2:
        raise NotAProduct("a vector takes part in the product")
    left_axes = (*range(rank - left_rank, rank - 2), rank - 2, rank)
    right_axes = (*range(rank - right_rank, rank - 2), rank, rank - 1)
    return Product(node, Operand(left, left_axes), Operand(right, right_axes), rank, alpha)


def _einsum(node: Node) -> Product:
    arguments: tuple[Any, ...] = node.args
    equation, *rest = arguments
    operands = rest[0] if len(rest) == 1 and isinstance(rest[0], (list, tuple)) else rest
    if not isinstance(equation, str) or len(operands) != 2 or not all(map(is_tensor, operands)):
        raise NotAProduct("the einsum has not two operands and a text equation")
    ranks = [len(shape(operand)) for operand in operands]
    inputs, output = einsum_labels(equation, ranks)
    numbers = {label: number for number, label in enumerate(output)}
    for label in inputs[0] + inputs[1]:
        numbers.setdefault(label, len(numbers))
    left, right = (
        Operand(operand, tuple(numbers[label] for label in labels))
        for operand, labels in zip(operands, inputs, strict=True)
    )
    return Product(node, left, right, len(output))


def einsum_labels(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Labels of the two inputs and of the output, with `...` written out.

    Raises NotAProduct for diagonals and odd forms.
    """
    sides = equation.replace(" ", "").split("->")
    inputs = sides[0].split(",")
    if len(inputs) != 2:
        raise NotAProduct(f"einsum {equation!r} has not two inputs")
    dots = [
        rank - len(text.replace("...", "")) if "..." in text else 0 for text, rank in zip(inputs, ranks, strict=True)
    ]
    extra = "".join(letter for letter in _unused(equation))[: max(dots)]
    if len(extra) < max(dots):
        raise NotAProduct(f"einsum {equation!r} has too many dims")
    written = [text.replace("...", extra[len(extra) - dot :]) for text, dot in zip(inputs, dots, strict=True)]
    if len(sides) == 2:
        output = sides[1].replace("...", extra)
    else:
        joined = written[0] + written[1]
        output = extra + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in extra))
    if any(len(set(text)) != len(text) for text in (*written, output)):
        raise NotAProduct(f"einsum {equation!r} repeats a label in one operand")
    return written, output


def _unused(equation: str) -> Iterator[str]:
    return (letter for letter in map(chr, range(0x3B1, 0x3C9)) if letter not in equation)

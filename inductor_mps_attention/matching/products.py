"""A product of two tensors, in one form: matmul, bmm, baddbmm, linear without bias, einsum with any letters.

Knows nothing of attention.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Node

from .axes import Operand
from .canonical import PRODUCTS, Op, canonical, word
from .nodes import is_tensor, shape
from .signatures import given


@dataclass(frozen=True)
class Product:
    """out[axes 0..r-1] = added + alpha * sum over the contracted axes of left * right.

    Axes are numbered by the output's dims; contracted ones get numbers from `len(out)` on. `alpha` is a number or a
    node; `added` a tensor, None for nothing.
    """

    node: Node
    left: Operand
    right: Operand
    rank: int
    alpha: Any = 1.0
    added: Node | None = None

    @property
    def contracted(self) -> set[int]:
        return {axis for axis in (*self.left.axes, *self.right.axes) if axis >= self.rank}


class NotAProduct(Exception):
    """This spelling of a product is not understood; the message says why."""


def is_product(node: Any) -> bool:
    """A linear layer with a bias is a projection, and no product of q and k or of weights and v."""
    return canonical(node) in PRODUCTS or (canonical(node) is Op.LINEAR and given(node, "bias") is None)


def product(node: Node) -> Product:
    """The product that `node` computes. Raises NotAProduct for a form that is not a plain product of two tensors."""
    if node.kwargs.get("out") is not None:
        raise NotAProduct("the product writes into out=")
    op = canonical(node)
    if op is Op.EINSUM:
        return _einsum(node)
    if op is Op.BADDBMM:
        return _baddbmm(node)
    if op is Op.LINEAR:
        return _matmul(node, given(node, "input"), given(node, "weight"), transposed=True)
    left, right = given(node, "input"), given(node, "other")
    if word(node) == "__rmatmul__":
        left, right = right, left
    return _matmul(node, left, right)


def _baddbmm(node: Node) -> Product:
    added, beta = given(node, "input"), given(node, "beta")
    if beta not in (0, 1):
        raise NotAProduct(f"baddbmm adds {beta} times its input; 0 and 1 are followed")
    found = _matmul(node, given(node, "batch1"), given(node, "batch2"))
    return replace(found, alpha=given(node, "alpha"), added=added if beta == 1 else None)


def _matmul(node: Node, left: Node, right: Node, transposed: bool = False) -> Product:
    """transposed: the right operand is summed over its last dim."""
    if not (is_tensor(left) and is_tensor(right)):
        raise NotAProduct("an operand is not a tensor")
    rank, left_rank, right_rank = len(shape(node)), len(shape(left)), len(shape(right))
    if min(rank, left_rank, right_rank) < 2:
        raise NotAProduct("a vector takes part in the product")
    left_axes = (*range(rank - left_rank, rank - 2), rank - 2, rank)
    inner = (rank - 1, rank) if transposed else (rank, rank - 1)
    right_axes = (*range(rank - right_rank, rank - 2), *inner)
    return Product(node, Operand(left, left_axes), Operand(right, right_axes), rank)


def _einsum(node: Node) -> Product:
    equation, operands = _equation(node)
    if not all(map(is_tensor, operands)):
        raise NotAProduct("an operand of the einsum is not a tensor")
    inputs, output = einsum_labels(equation, [len(shape(operand)) for operand in operands])
    pairs = list(zip(operands, inputs, strict=True))
    numbers_only = [operand for operand, labels in pairs if not labels]
    factors = [(operand, labels) for operand, labels in pairs if labels]
    if len(factors) != 2 or len(numbers_only) > 1:
        raise NotAProduct(f"einsum {equation!r} is no product of two tensors, perhaps with one number")
    numbers = {label: number for number, label in enumerate(output)}
    for label in factors[0][1] + factors[1][1]:
        numbers.setdefault(label, len(numbers))
    left, right = (Operand(operand, tuple(numbers[label] for label in labels)) for operand, labels in factors)
    return Product(node, left, right, len(output), numbers_only[0] if numbers_only else 1.0)


def _equation(node: Node) -> tuple[str, list[Any]]:
    """The equation and the operands, also of `einsum(q, [0, 1, 2], k, [0, 3, 2], [0, 1, 3])` and of a list."""
    arguments: tuple[Any, ...] = node.args
    first, *rest = arguments
    if isinstance(first, str):
        return first, list(rest[0]) if len(rest) == 1 and isinstance(rest[0], (list, tuple)) else rest
    operands, sublists = list(arguments[0::2]), list(arguments[1::2])
    output = operands.pop() if len(arguments) % 2 else None
    if not all(isinstance(labels, (list, tuple)) for labels in (*sublists, *([] if output is None else [output]))):
        raise NotAProduct("the einsum has no equation")
    inputs = ",".join(map(_letters, sublists))
    return inputs if output is None else f"{inputs}->{_letters(output)}", operands


def _letters(labels: Any) -> str:
    """Numbers of a sublist as letters, as torch counts them: A-Z, then a-z."""
    return "".join(
        "..." if label is Ellipsis else (string.ascii_uppercase + string.ascii_lowercase)[label] for label in labels
    )


def einsum_labels(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Labels of the inputs and of the output, with `...` written out.

    Raises NotAProduct for diagonals and odd forms.
    """
    sides = equation.replace(" ", "").split("->")
    inputs = sides[0].split(",")
    if len(inputs) != len(ranks):
        raise NotAProduct(f"einsum {equation!r} has {len(inputs)} inputs, got {len(ranks)} tensors")
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
        joined = "".join(written)
        output = extra + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in extra))
    if any(len(set(text)) != len(text) for text in (*written, output)):
        raise NotAProduct(f"einsum {equation!r} repeats a label in one operand")
    return written, output


def _unused(equation: str) -> Iterator[str]:
    return (letter for letter in map(chr, range(0x3B1, 0x3C9)) if letter not in equation)

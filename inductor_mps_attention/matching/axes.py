"""Which axis of the scores each dim of a tensor is, followed through transposes and regroupings.

Knows nothing of masks or scales.

An axis is a number that the first product gives to its output's dims; LEAD axes are batch and heads. A view that only
regroups the lead dims, in order, starts a second numbering (`REGROUPED + k`); anything that mixes a lead dim with the
query or key axis gives MIXED dims, which stay unknown until another view undoes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from .canonical import Op, canonical, word
from .nodes import Size, argument, is_tensor, same_sizes, shape, source_of

REGROUPED = 100
MIXED = 200  # a dim that a view made of lead axes and one of the inner ones
INNER = 1000  # the contracted axis: of q and k in the first product
VALUE = 1001  # the head dim of v, in the second product
ONE = -1  # a dim of size 1 that is no axis of the attention

# Matrices are real here, so a conjugate transpose is a transpose.
_SWAPS_LAST = frozenset({"mT", "mH", "adjoint"})
_SWAPS_OF_TWO = frozenset({"T", "H", "t", "numpy_T", "matrix_H"})


@dataclass(frozen=True)
class Operand:
    """A tensor of the graph with the axis of each of its dims."""

    node: Node
    axes: tuple[int, ...]

    def size(self, axis: int) -> Size:
        """The size along an axis; 1 where this operand is broadcast along it."""
        return shape(self.node)[self.axes.index(axis)] if axis in self.axes else 1


def permutation(node: Node) -> tuple[int, ...] | None:
    """The order of dims that a PERMUTE node reads its input in: out.shape[p] == in.shape[order[p]].

    None if not followed.
    """
    if not is_tensor(node) or not node.args or not is_tensor(source_of(node)):
        return None
    rank = len(shape(node))
    name = word(node)
    order = list(range(rank))
    if name in _SWAPS_LAST or (name in _SWAPS_OF_TWO and rank == 2):
        order[-1], order[-2] = order[-2], order[-1]
    elif name in ("transpose", "swapaxes", "swapdims"):
        first = argument(node, 1, "dim0", "axis0")
        second = argument(node, 2, "dim1", "axis1")
        order[first % rank], order[second % rank] = order[second % rank], order[first % rank]
    elif name == "permute":
        dims = argument(node, 1, "dims")
        given: Any = dims if isinstance(dims, (list, tuple)) else node.args[1:]
        order = [dim % rank for dim in given]
    elif name in ("movedim", "moveaxis"):
        return _moved(node, rank)
    elif rank >= 2:
        return None
    return tuple(order)


def read_through(operand: Operand, passes: Callable[[Node], bool]) -> tuple[Operand, list[Node]]:
    """The same operand seen from beneath its transposes and beneath every node that `passes` accepts.

    Transposes are views, so nothing is read earlier or later. The accepted nodes are returned, outermost first: eager
    reads at the last of them. They must keep the order of dims.
    """
    node, axes = operand.node, operand.axes
    read: list[Node] = []
    while is_tensor(source_of(node)):
        if canonical(node) is Op.PERMUTE:
            order = permutation(node)
            if order is None:
                break
            inner = [ONE] * len(axes)
            for place, dim in enumerate(order):
                inner[dim] = axes[place]
            axes = tuple(inner)
        elif passes(node):
            read.append(node)
        else:
            break
        node = source_of(node)
    return Operand(node, axes), read


def _moved(node: Node, rank: int) -> tuple[int, ...]:
    def as_dims(dims: object) -> list[int]:
        return [dim % rank for dim in (dims if isinstance(dims, (list, tuple)) else (dims,))]

    source = as_dims(argument(node, 1, "source"))
    destination = as_dims(argument(node, 2, "destination"))
    rest = iter([dim for dim in range(rank) if dim not in source])
    return tuple(source[destination.index(p)] if p in destination else next(rest) for p in range(rank))


def follow(node: Node, axes: tuple[int, ...], lead: int) -> tuple[int, ...] | None:
    """Axes of the output of `node`, given those of its first input. None if `node` mixes axes.

    lead: how many lead axes the first product has.
    """
    op = canonical(node)
    if op is Op.PERMUTE:
        order = permutation(node)
        return None if order is None else tuple(axes[dim] for dim in order)
    if op is not Op.VIEW:
        return axes if len(shape(node)) == len(axes) else None
    before, after = shape(source_of(node)), shape(node)
    if same_sizes(before, after):
        return axes
    inner = axes[-2:]
    if any(axis < lead or REGROUPED <= axis < INNER for axis in inner) or len(after) < 2:
        return None
    if not same_sizes(before[-2:], after[-2:]) or not _lead_in_order(axes[:-2], lead):
        return None
    return tuple(range(REGROUPED, REGROUPED + len(after) - 2)) + inner


def _lead_in_order(axes: tuple[int, ...], lead: int) -> bool:
    """All lead axes, each once, slowest first: else a regrouping would move (batch, head) pairs."""
    own = tuple(range(lead))
    return axes in (own, tuple(range(REGROUPED, REGROUPED + len(axes))))


def mixed_by_view(node: Node) -> tuple[int, ...] | None:
    """Axes after a view that keeps the last dim and regroups all others in order: `scores.view(-1, keys)`.

    The last axis is MIXED as well, for the caller to name. None if the last dim does not stay.
    """
    before, after = shape(source_of(node)), shape(node)
    return tuple(range(MIXED, MIXED + len(after))) if same_sizes(before[-1:], after[-1:]) else None


def is_mixed(axes: tuple[int, ...]) -> bool:
    return any(MIXED <= axis < INNER for axis in axes)


def is_regrouped(axes: tuple[int, ...]) -> bool:
    return any(REGROUPED <= axis < INNER for axis in axes)

"""The anchors: a softmax in one form, whatever its spelling. Knows nothing of products.

Besides softmax itself: `softmin(-x)`, `exp(log_softmax(x))`, `exp(x - logsumexp(x))`, `e / e.sum()` and `(e @ v) /
e.sum()` with `e = exp(x)` or `exp(x - max(x))`, or times the reciprocal. Without the maximum these overflow where
softmax does not; that is the one difference, and fused code is the more precise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from .canonical import Op, canonical, word
from .memory import is_dead
from .nodes import is_tensor, value
from .products import is_product
from .reductions import Reduction, reduction, shift_of
from .signatures import given


@dataclass(frozen=True)
class Softmax:
    """`output = softmax(input, dim)`, or `softmax(-input, dim)` if `negates`.

    readers: the nodes that read `input`. inside: all nodes of the softmax, in graph order, `output` included. late: the
    division of the product with v, when `output` is not yet divided by its sum.
    """

    input: Node
    output: Node
    dim: Any
    readers: tuple[Node, ...]
    inside: tuple[Node, ...]
    late: Node | None = None
    negates: bool = False

    @property
    def anchor(self) -> Node:
        return self.late or self.output

    def leaks(self) -> list[Node]:
        """Users of inner values that are no part of the softmax; users of the output are not meant."""
        own = {*self.inside, self.late}
        inner = [node for node in self.inside if node is not self.output]
        return [user for node in inner for user in node.users if user not in own and not is_dead(user)]


def softmax_at(node: Node) -> Softmax | None:
    """The softmax whose last node this is, None if there is none."""
    if not is_tensor(node) or not value(node).dtype.is_floating_point:
        return None
    op = canonical(node)
    if op in (Op.SOFTMAX, Op.SOFTMIN):
        source = given(node, "input")
        if not is_tensor(source):
            return None
        return Softmax(source, node, _dim(node), (node,), (node,), negates=op is Op.SOFTMIN)
    if op is Op.EXP:
        return _exp_of_log(node)
    return _quotient(node) if op in (Op.DIV, Op.MUL) else None


def _dim(node: Node) -> Any:
    """The dim given, or the one that `F.softmax(dim=None)` picks."""
    dim = given(node, "dim")
    if dim is None and word(node) in ("softmax", "log_softmax", "softmin"):
        return 0 if value(node).dim() in (0, 1, 3) else 1
    return dim


def _exp_of_log(node: Node) -> Softmax | None:
    """exp(log_softmax(x)), exp(x - logsumexp(x))."""
    log = given(node, "input")
    if canonical(log) is Op.LOG_SOFTMAX and is_tensor(given(log, "input")):
        return Softmax(given(log, "input"), node, _dim(log), (log,), (log, node))
    shift = shift_of(log, Op.LOGSUMEXP)
    if shift is None:
        return None
    return Softmax(shift.source, node, shift.dim, (shift.nodes[0], log), (*shift.nodes, log, node))


def _quotient(node: Node) -> Softmax | None:
    """e / e.sum(), (e @ v) / e.sum(), and both as products with 1 / e.sum()."""
    divided = _divided(node)
    if divided is None:
        return None
    numerator, total, inverse = divided
    exponential = total.source
    if canonical(exponential) is not Op.EXP:
        return None
    late = None
    if numerator is not exponential:
        if not is_product(numerator) or exponential not in numerator.all_input_nodes:
            return None
        late = node
    source, shift = _unshifted(exponential, total.dim)
    inside = (*shift, exponential, *total.nodes, *inverse, *(() if late else (node,)))
    readers = (shift[0], shift[-1]) if shift else (exponential,)
    return Softmax(source, exponential if late else node, total.dim, readers, inside, late)


def _divided(node: Node) -> tuple[Node, Reduction, tuple[Node, ...]] | None:
    """The numerator, the sum that it is divided by, and the node that inverts the sum, if there is one."""
    if canonical(node) is Op.DIV and given(node, "rounding_mode") is not None:
        return None
    first, second = given(node, "input"), given(node, "other")
    choices = [(first, second)] if canonical(node) is Op.DIV else [(first, second), (second, first)]
    for numerator, factor in choices:
        divisor = factor if canonical(node) is Op.DIV else _inverted(factor)
        total = reduction(divisor)
        if is_tensor(numerator) and total is not None and total.op is Op.SUM and _plain_sum(total):
            return numerator, total, _between(factor, divisor)
    return None


def _between(node: Any, beneath: Any) -> tuple[Node, ...]:
    """The nodes from above `beneath` up to `node`, in graph order."""
    found: list[Node] = []
    while node is not beneath:
        found.insert(0, node)
        node = given(node, "input") if isinstance(given(node, "input"), Node) else given(node, "other")
    return tuple(found)


def _inverted(node: Any) -> Any:
    """x of `1 / x` and of `x.reciprocal()`; export writes the first as `x.reciprocal() * 1`."""
    if canonical(node) is Op.MUL and given(node, "other") == 1:
        node = given(node, "input")
    if canonical(node) is Op.RECIPROCAL or (canonical(node) is Op.POW and given(node, "exponent") == -1):
        return given(node, "input")
    if canonical(node) is Op.DIV and given(node, "input") == 1 and given(node, "rounding_mode") is None:
        return given(node, "other")
    return None


def _plain_sum(total: Reduction) -> bool:
    """Of the exponentials themselves, so that gradients flow through it, and in their dtype."""
    summed = total.nodes[0]
    return (
        canonical(summed) is Op.SUM
        and not any(canonical(node) is Op.DETACH for node in total.nodes)
        and (given(summed, "dtype") is None)
    )


def _unshifted(exponential: Node, dim: int) -> tuple[Node, tuple[Node, ...]]:
    """The input of `x - max(x)` along the dim, and the nodes of it; or what is exponentiated itself."""
    node: Node = given(exponential, "input")
    shift = shift_of(node, Op.AMAX)
    if shift is None or shift.dim != dim:
        return node, ()
    return shift.source, (*shift.nodes, node)

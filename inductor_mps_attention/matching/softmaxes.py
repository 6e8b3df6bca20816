"""The anchors: a softmax in one form, whatever its spelling. Knows nothing of products.

Besides softmax itself: `exp(log_softmax(x))`, `exp(x - logsumexp(x))`, `e / e.sum(keepdim)` and `(e @ v) /
e.sum(keepdim)` with `e = exp(x)` or `exp(x - max(x))`. Without the maximum these overflow where softmax does not;
that is the one difference, and fused code is the more precise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from .canonical import PRODUCTS, Op, canonical, spelling
from .nodes import argument, is_dead, is_tensor, shape, source_of, value


@dataclass(frozen=True)
class Softmax:
    """`output = softmax(input, dim)`.

    readers: the nodes that read `input`. inside: all nodes of the softmax, in graph order, `output` included. late: the
    division of the product with v, when `output` is not yet divided by its sum.
    """

    input: Node
    output: Node
    dim: Any
    readers: tuple[Node, ...]
    inside: tuple[Node, ...]
    late: Node | None = None

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
    if op is Op.SOFTMAX:
        source = argument(node, 0, "input", "self")
        return Softmax(source, node, _dim(node), (node,), (node,)) if is_tensor(source) else None
    if op is Op.EXP:
        return _exp_of_log(node)
    return _quotient(node) if op is Op.DIV else None


def _dim(node: Node) -> Any:
    """The dim given, or the one that `F.softmax(dim=None)` picks."""
    dim = argument(node, 1, "dim")
    if dim is None and spelling(node) in ("softmax", "log_softmax"):
        return 0 if value(node).dim() in (0, 1, 3) else 1
    return dim


def _exp_of_log(node: Node) -> Softmax | None:
    """exp(log_softmax(x)), exp(x - logsumexp(x))."""
    log = source_of(node)
    if canonical(log) is Op.LOG_SOFTMAX:
        return Softmax(argument(log, 0, "input", "self"), node, _dim(log), (log,), (log, node))
    if canonical(log) is not Op.SUB or argument(log, 2, "alpha", default=1) != 1:
        return None
    source, total = source_of(log), argument(log, 1, "other")
    if canonical(total) is not Op.LOGSUMEXP or source_of(total) is not source:
        return None
    dim = _kept_dim(total, source)
    return None if dim is None else Softmax(source, node, dim, (log, total), (total, log, node))


def _quotient(node: Node) -> Softmax | None:
    """e / e.sum(), (e @ v) / e.sum()."""
    numerator, total = source_of(node), argument(node, 1, "other")
    if canonical(total) is not Op.SUM or not is_tensor(numerator) or argument(node, 2, "rounding_mode") is not None:
        return None
    if argument(total, 3, "dtype") is not None:
        return None
    exponential = source_of(total)
    if canonical(exponential) is not Op.EXP or spelling(exponential).endswith("_"):
        return None
    dim = _kept_dim(total, exponential)
    if dim is None:
        return None
    late = None
    if numerator is not exponential:
        if canonical(numerator) not in PRODUCTS or exponential not in numerator.all_input_nodes:
            return None
        late = node
    source, shift = _unshifted(source_of(exponential), dim)
    inside = (*shift, exponential, total, *(() if late else (node,)))
    readers = (shift[0], shift[-1]) if shift else (exponential,)
    return Softmax(source, exponential if late else node, dim, readers, inside, late)


def _unshifted(node: Node, dim: int) -> tuple[Node, tuple[Node, ...]]:
    """The input of `x - max(x)` along the dim, and the nodes of it; or the node itself."""
    if canonical(node) is not Op.SUB or argument(node, 2, "alpha", default=1) != 1:
        return node, ()
    source, shift = source_of(node), argument(node, 1, "other")
    links = []
    while canonical(shift) in (Op.DETACH, Op.GETITEM) and shift.args:
        if canonical(shift) is Op.GETITEM and shift.args[1] != 0:
            return node, ()
        links.append(shift)
        shift = source_of(shift)
    if canonical(shift) is not Op.AMAX or source_of(shift) is not source or _kept_dim(shift, source) != dim:
        return node, ()
    return source, (shift, *reversed(links), node)


def _kept_dim(node: Node, source: Node) -> int | None:
    """The one dim, from the front, that a reduction with keepdim=True reduces."""
    dim = argument(node, 1, "dim", "axis")
    if isinstance(dim, (list, tuple)) and len(dim) == 1:
        dim = dim[0]
    if (
        not isinstance(dim, int)
        or isinstance(dim, bool)
        or argument(node, 2, "keepdim", "keepdims", default=False) is not True
    ):
        return None
    return dim % len(shape(source))

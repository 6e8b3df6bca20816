"""Who reads and who writes a value: the one user of a link of the chain, statement-form in-place writes, near and far
products.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.fx import Node

from ..errors import Reason
from .canonical import Op, canonical, spelling, word
from .findings import Findings
from .memory import changes_memory, mutates, write_targets
from .nodes import argument, is_tensor, shape
from .products import is_product
from .reductions import shift_from, shift_of
from .signatures import given

Positions = dict[Node, int]

_REACH = 24
_IN_PLACE_LINKS = frozenset({Op.MUL, Op.DIV, Op.ADD, Op.SUB, Op.MASKED_FILL})
_SOFTMAXES = (Op.SOFTMAX, Op.SOFTMIN, Op.LOG_SOFTMAX)
_SHAPE_ONLY = frozenset({Op.ZEROS, Op.ONES, Op.EMPTY})


def reads_metadata(user: Node, source: Node) -> bool:
    """Does the user look at the source's shape, dtype or device only?"""
    op = canonical(user)
    if op is Op.METADATA or (op in _SHAPE_ONLY and user.args[:1] == (source,)):
        return True
    name = word(user)
    if name in ("full_like", "new_full") and user.args[:1] == (source,):
        return source not in (argument(user, 1, "fill_value"), argument(user, 2, "fill_value"))
    return name in ("type_as", "to", "view_as", "reshape_as", "expand_as") and user.args[0] is not source


def value_users(node: Node) -> list[Node]:
    return [user for user in node.users if not reads_metadata(user, node)]


def links_from(source: Node, readers: tuple[Node, ...], positions: Positions, findings: Findings) -> list[Node]:
    """In-place writes on `source` that the readers see, first to last. Any other user of `source` is a no.

    `scores.mul_(c)` as a statement leaves `scores` with two users: the write, and whoever reads the result.
    """
    links, users = [], value_users(source)
    shifts = [shift_of(user, Op.AMAX) for user in users if _is_statement(user, source)]
    maxima = {shift.nodes[0] for shift in shifts if shift is not None}  # of `scores.sub_(scores.amax(..))`
    for user in users:
        if user in readers or user in maxima:
            continue
        if _is_statement(user, source) and positions[user] < min(map(positions.__getitem__, readers)):
            links.append(user)
        elif changes_memory(user, source):
            findings.no(Reason.MUTATION, f"`{source.name}` is written by {spelling(user)} inside the attention", user)
        else:
            where = "returned" if user.op == "output" else f"used by `{user.name}` ({spelling(user)})"
            findings.no(Reason.INNER_VALUE_USED, f"the inner value `{source.name}` is also {where}", user)
    return sorted(links, key=positions.__getitem__)


def _is_statement(user: Node, source: Node) -> bool:
    """An in-place link that writes into `source` alone, and whose result nobody uses."""
    return (
        canonical(user) in _IN_PLACE_LINKS
        and write_targets(user) == [source]
        and user.all_input_nodes.count(source) == 1
        and user.args[:1] == (source,)
        and source not in user.args[1:]
        and not user.users
    )


def carrier(node: Node) -> Node | None:
    """The input of an elementwise or view node that leads up to a product, None if none does."""
    shift = shift_from(node)
    if shift is not None:
        return shift.source
    op = canonical(node)
    if (op in (Op.MUL, Op.DIV, Op.ADD, Op.SUB) and not mutates(node)) or op is Op.WHERE:
        choices = [given(node, "input"), given(node, "other")]
    elif op in _IN_PLACE_LINKS or op in (Op.CAST, Op.COPY, Op.PERMUTE, Op.VIEW, Op.EXPAND, Op.DETACH):
        choices = [given(node, "input")]
    else:
        choices = [*node.args[:2]]
    tensors = [choice for choice in choices if is_tensor(choice)]
    return next((choice for choice in tensors if comes_from_product(choice)), None)


def comes_from_product(node: Node) -> bool:
    """Is there a product up the first inputs, through any same-rank or view operations?"""

    def above(current: Node) -> list[Node]:
        if canonical(current) in (*_SOFTMAXES, Op.SDPA):
            return []
        return [source for source in current.args[:3] if isinstance(source, Node) and is_tensor(source)]

    return _reaches(node, above, _is_scores_product)


def _is_scores_product(node: Node) -> bool:
    return is_product(node) and len(shape(node)) >= 2


def goes_to_product(node: Node) -> bool:
    """Do a softmax's weights reach a product, through views, dropout and arithmetic?

    Then it is (nearly) an attention.
    """

    def below(current: Node) -> list[Node]:
        if canonical(current) in _SOFTMAXES and current is not node:
            return []
        return [
            user
            for user in current.users
            if is_tensor(user) and len(shape(user)) >= 2 and not reads_metadata(user, current)
        ]

    return _reaches(node, below, lambda reached: reached is not node and is_product(reached))


def _reaches(start: Node, step: Callable[[Node], list[Node]], goal: Callable[[Node], bool]) -> bool:
    frontier, seen = [start], {start}
    for _ in range(_REACH):
        following = []
        for node in frontier:
            if goal(node):
                return True
            for neighbour in step(node):
                if neighbour not in seen:
                    seen.add(neighbour)
                    following.append(neighbour)
        frontier = following
    return False

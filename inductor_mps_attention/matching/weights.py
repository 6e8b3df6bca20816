"""From a softmax down to the product with v: dropout, casts and views on the way. Knows nothing of scales or masks."""

from __future__ import annotations

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..errors import Reason
from . import flow
from .axes import INNER, REGROUPED, VALUE, Operand, is_regrouped
from .candidate import Candidate
from .canonical import Op, canonical, spelling
from .nodes import known, shape, value
from .products import NotAProduct, Product, is_product, product
from .signatures import given
from .softmaxes import Softmax
from .views import follow_view


def trace_weights(candidate: Candidate, softmax: Softmax, axes: tuple[int, ...]) -> None:
    """Fills v, out and out_axes of the candidate. axes: those of the softmax's dims.

    Raises DeadEnd if no product is reached.
    """
    for user in softmax.leaks():
        text = f"a value inside the softmax is also used by `{user.name}` ({spelling(user)})"
        candidate.findings.no(Reason.INNER_VALUE_USED, text, user)
    current = softmax.output
    while True:
        user = _only_user(candidate, current, softmax)
        candidate.chain.append(user)
        if is_product(user):
            break
        axes = _through(candidate, user, current, axes)
        current = user
    _second_product(candidate, user, current, axes, softmax)


def _only_user(candidate: Candidate, current: Node, softmax: Softmax) -> Node:
    """The user that leads to the product. Every other one is a no."""
    users = [user for user in flow.value_users(current) if user not in softmax.inside]
    towards = [user for user in users if is_product(user) or flow.goes_to_product(user)]
    chosen = towards[0] if towards else None
    for user in users:
        if user is not chosen:
            where = "returned" if user.op == "output" else f"used by `{user.name}` ({spelling(user)})"
            text = f"the weights `{current.name}` are also {where}"
            candidate.findings.no(Reason.INNER_VALUE_USED, text, user)
    if chosen is None:
        raise candidate.findings.dead_end(Reason.PRODUCT, "the weights reach no product with v", current)
    return chosen


def _through(candidate: Candidate, user: Node, current: Node, axes: tuple[int, ...]) -> tuple[int, ...]:
    op, findings = canonical(user), candidate.findings
    if op in (Op.PERMUTE, Op.VIEW):
        followed = follow_view(candidate, user, axes)
        if followed is None:
            text = f"{spelling(user)} `{user.name}` mixes the query or key axis of the weights with others"
            raise findings.dead_end(Reason.LAYOUT, text, user)
        return followed
    if op is Op.CAST:
        if value(user).device != value(current).device:
            text = f"the weights move from {value(current).device} to {value(user).device}"
            findings.no(Reason.DEVICE, text, user)
    elif op is Op.DROPOUT:
        check_dropout(candidate, user)
    elif op is not Op.COPY:
        findings.no(
            Reason.WEIGHTS_MODIFIED, f"the weights pass through {spelling(user)} before the product with v", user
        )
    if given(user, "input") is not current or len(shape(user)) != len(axes):
        text = f"the weights enter {spelling(user)} `{user.name}` in a way that is not followed"
        raise findings.dead_end(Reason.WEIGHTS_MODIFIED, text, user)
    return axes


def check_dropout(candidate: Candidate, node: Node) -> None:
    """Dropout is a no unless it is off: p = 0, or not training."""
    if given(node, "training") is not False:
        check_probability(candidate, given(node, "p"), node)


def check_probability(candidate: Candidate, given: object, node: Node) -> None:
    """A dropout probability that is not provably 0 is a no."""
    probability = value(given) if isinstance(given, Node) else given
    if isinstance(probability, torch.SymFloat):
        if free_unbacked_symbols(probability):
            text = (
                "the dropout probability is a symbolic float (dynamic=True); it can be fused when it is the constant 0"
            )
            candidate.findings.no(Reason.DROPOUT, text, node)
            return
        probability = float(probability)
    if not isinstance(probability, (int, float)) or probability != 0:
        text = f"dropout with p={probability} on the weights; kernels have none (limit 0)"
        candidate.findings.no(Reason.DROPOUT, text, node)


def _second_product(candidate: Candidate, node: Node, weights: Node, axes: tuple[int, ...], softmax: Softmax) -> None:
    findings = candidate.findings
    try:
        found = product(node)
    except NotAProduct as error:
        raise findings.dead_end(Reason.PRODUCT, f"the product with v: {error}", node) from None
    if found.added is not None:
        raise findings.dead_end(Reason.PRODUCT, "the product with v adds a tensor (baddbmm, beta is not 0)", node)
    if found.alpha != 1.0:
        raise findings.dead_end(Reason.WEIGHTS_MODIFIED, f"the product with v is scaled by {found.alpha}", node)
    left, right = found.left, found.right
    if (left.node is weights) == (right.node is weights):
        text = "the weights are no factor, or both factors, of the product with v"
        raise findings.dead_end(Reason.PRODUCT, text, node)
    own, other = (left, right) if left.node is weights else (right, left)
    names = dict(zip(own.axes, axes, strict=True))
    _check_summed(candidate, found, names, softmax)
    fresh = [axis for axis in other.axes if axis not in names]
    if len(fresh) != 1 or fresh[0] >= found.rank:
        text = f"v has {len(fresh)} axes of its own in the product, attention 1"
        raise findings.dead_end(Reason.PRODUCT, text, node)
    names[fresh[0]] = VALUE
    candidate.v = Operand(other.node, tuple(names[axis] for axis in other.axes))
    candidate.out, candidate.out_axes = node, tuple(names[axis] for axis in range(found.rank))
    if candidate.row in candidate.v.axes:
        raise findings.dead_end(Reason.PRODUCT, "v has the query axis, so it is another v for each query", node)
    _check_lead(candidate)
    if softmax.late is not None:
        _divide_late(candidate, softmax.late, axes)


def _divide_late(candidate: Candidate, late: Node, axes: tuple[int, ...]) -> None:
    """`(e @ v) / e.sum(keepdim)`: the quotient is the output, if the dims of the sum and of the product correspond."""
    product_node = candidate.out
    assert product_node is not None
    if [VALUE if axis == candidate.key else axis for axis in axes] != list(candidate.out_axes):
        text = "the sum that the output is divided by has other dims than the output"
        raise candidate.findings.dead_end(Reason.WEIGHTS_MODIFIED, text, late)
    for user in flow.value_users(product_node):
        if user is not late:
            text = f"the output before its division is also used by `{user.name}` ({spelling(user)})"
            candidate.findings.no(Reason.INNER_VALUE_USED, text, user)
    candidate.chain.append(late)
    candidate.out = late


def _check_summed(candidate: Candidate, found: Product, names: dict[int, int], softmax: Softmax) -> None:
    """The product must sum over the key axis, and over nothing else."""
    summed = [names.get(axis, INNER) for axis in found.contracted]
    if summed == [candidate.key]:
        return
    findings = candidate.findings
    if summed == [candidate.row]:
        rank = len(shape(softmax.output))
        text = (
            f"softmax over dim {softmax.dim} of {rank}, but the product with v sums over the other of the last two;"
            f" the key axis is dim {rank - 1 if softmax.dim % rank != rank - 1 else rank - 2}"
        )
        raise findings.dead_end(Reason.SOFTMAX_AXIS, text, softmax.output)
    text = f"the product with v sums over {len(summed)} axes, and not just over the keys"
    raise findings.dead_end(Reason.PRODUCT, text, found.node)


def _check_lead(candidate: Candidate) -> None:
    """After a regrouping, v and the output must have the lead axes in order, and v all of them."""
    assert candidate.v is not None
    assert candidate.out is not None
    lead = [axis for axis in candidate.out_axes if axis not in (candidate.row, VALUE)]
    if not is_regrouped(candidate.out_axes) and not is_regrouped(candidate.v.axes):
        if sorted(lead) == list(range(len(candidate.lead))):
            return
    elif sorted(lead) == list(range(REGROUPED, REGROUPED + len(lead))):
        sizes = [candidate.v.size(axis) for axis in sorted(lead)]
        wanted = [shape(candidate.out)[candidate.out_axes.index(axis)] for axis in sorted(lead)]
        if all(known(size == full) for size, full in zip(sizes, wanted, strict=True)):
            return
    text = "the batch and head axes of the weights and of v do not correspond"
    raise candidate.findings.dead_end(Reason.LAYOUT, text, candidate.out)

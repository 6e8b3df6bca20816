"""From a softmax up to the product of q and k: scales, masks, casts and views on the way.

Knows nothing of v, of dtypes or of kernels.
"""

from __future__ import annotations

from dataclasses import replace

from torch.fx import Node

from ..errors import Reason
from . import flow
from .axes import INNER, Operand, is_mixed
from .candidate import Candidate, Factor, MaskTerm
from .canonical import Op, canonical, spelling
from .memory import is_dead, mutates
from .nodes import is_tensor, same_sizes, shape, value
from .products import NotAProduct, Product, is_product, product
from .reductions import Reduction, shift_from, shift_of
from .signatures import given
from .softmaxes import Softmax
from .views import follow_view


def trace_scores(candidate: Candidate, softmax: Softmax, positions: flow.Positions) -> tuple[int, ...]:
    """Fills q, k, lead, row, key, factors and masks of the candidate; returns the axes of the softmax's dims.

    Raises DeadEnd when no product is reached.
    """
    path = _path_up(candidate, softmax, positions)
    found = _product(candidate, path[0])
    if found.alpha != 1.0:
        candidate.factors.append(Factor(found.alpha, False, path[0]))
    found, axes = _renumber(found, _outer_axes(candidate, found))
    if found.added is not None:
        candidate.masks.append(MaskTerm(found.added, "add", None, found.node, axes))
    candidate.lead = tuple(shape(found.node)[axes.index(axis)] for axis in range(found.rank - 2))
    shifted: list[tuple[Node, int]] = []
    for link in path[1:]:
        shift = shift_of(link, Op.AMAX) or shift_from(link)
        if shift is None:
            axes = _replay(candidate, link, axes)
        else:
            if shift_from(link) is not None:
                candidate.factors.append(Factor(-1.0, False, link))
            shifted.append((link, axes[shift.dim]))
            _take_shift(candidate, link, shift)
    if softmax.negates:
        candidate.factors.append(Factor(-1.0, False, softmax.output))
    candidate.chain[:0] = path
    _assign(candidate, found, axes, softmax)
    for link, axis in shifted:
        if axis != candidate.key:
            text = "the maximum that is subtracted from the scores is not taken over the keys"
            candidate.findings.no(Reason.SCORE_MODIFIED, text, link)
    return axes


def _take_shift(candidate: Candidate, link: Node, shift: Reduction) -> None:
    """`scores - scores.amax(keys)`, or that negated: softmax does not see what is the same for all keys of a query."""
    candidate.chain += shift.nodes
    own = {*shift.nodes, link}
    for node in shift.nodes:
        for user in flow.value_users(node):
            if user not in own and not is_dead(user):
                where = "returned" if user.op == "output" else f"used by `{user.name}` ({spelling(user)})"
                text = f"the maximum `{node.name}` of the scores is also {where}"
                candidate.findings.no(Reason.INNER_VALUE_USED, text, user)


def _path_up(candidate: Candidate, softmax: Softmax, positions: flow.Positions) -> list[Node]:
    """From the product (first) to the softmax's input (last); in-place writes stand where they take effect."""
    findings = candidate.findings
    current, readers = softmax.input, softmax.readers
    path: list[Node] = []
    while True:
        if not is_tensor(current):
            raise findings.dead_end(Reason.PRODUCT, "the softmax's input is not a tensor of this graph", softmax.anchor)
        path += reversed(flow.links_from(current, readers, positions, findings))
        path.append(current)
        if is_product(current):
            return path[::-1]
        above = flow.carrier(current)
        if above is None:
            text = f"the softmax's input comes from {spelling(current)} `{current.name}`, not from a product of q and k"
            raise findings.dead_end(Reason.PRODUCT, text, current)
        shift = shift_of(current, Op.AMAX) or shift_from(current)
        current, readers = above, (current,) if shift is None else (shift.nodes[0], current)


def _product(candidate: Candidate, node: Node) -> Product:
    try:
        found = product(node)
    except NotAProduct as error:
        reason = Reason.MASK if canonical(node) is Op.BADDBMM else Reason.PRODUCT
        raise candidate.findings.dead_end(reason, f"the product of q and k: {error}", node) from None
    if len(found.contracted) != 1:
        text = f"the product of q and k sums over {len(found.contracted)} axes, attention over 1"
        raise candidate.findings.dead_end(Reason.PRODUCT, text, node)
    return found


def _replay(candidate: Candidate, link: Node, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Accounts for one node between the product and the softmax; returns the axes of its output."""
    op, findings = canonical(link), candidate.findings
    source = given(link, "input") if mutates(link) else flow.carrier(link)
    assert source is not None
    if op in (Op.PERMUTE, Op.VIEW):
        followed = follow_view(candidate, link, axes)
        if followed is None:
            text = f"{spelling(link)} `{link.name}` mixes the query or key axis of the scores with others"
            raise findings.dead_end(Reason.LAYOUT, text, link)
        return followed
    if op is Op.CAST:
        _check_device(candidate, link, source)
    elif op in (Op.MUL, Op.DIV):
        _add_factor(candidate, link, source)
    elif op is Op.NEG:
        candidate.factors.append(Factor(-1.0, False, link))
    elif op in (Op.ADD, Op.SUB):
        _add_term(candidate, link, source, axes)
    elif op in (Op.MASKED_FILL, Op.WHERE):
        _add_mask(candidate, _fill_term(link, source, axes))
    elif op is not Op.COPY:
        findings.no(Reason.SCORE_MODIFIED, f"the scores pass through {spelling(link)} before the softmax", link)
    if not same_sizes(shape(link), shape(source)):
        text = f"{spelling(link)} `{link.name}` changes the scores from {_text(source)} to {_text(link)}"
        raise findings.dead_end(Reason.SHAPE, text, link)
    return axes


def _text(node: Node) -> str:
    return "(" + ", ".join(map(str, shape(node))) + ")"


def _check_device(candidate: Candidate, link: Node, source: Node) -> None:
    after, before = value(link).device, value(source).device
    if after != before:
        candidate.findings.no(Reason.DEVICE, f"the scores move from {before} to {after}", link)


def _add_factor(candidate: Candidate, link: Node, source: Node) -> None:
    first, second = given(link, "input"), given(link, "other")
    operand = second if first is source else first
    if canonical(link) is Op.DIV and given(link, "rounding_mode") is not None:
        candidate.findings.no(Reason.SCORE_MODIFIED, "the scores are divided with rounding", link)
    elif operand is source:
        candidate.findings.no(Reason.SCORE_MODIFIED, "the scores are multiplied with themselves", link)
    elif canonical(link) is Op.DIV and first is not source:
        candidate.findings.no(Reason.SCORE_MODIFIED, "the scores are a divisor", link)
    else:
        candidate.factors.append(Factor(operand, canonical(link) is Op.DIV, link))


def _add_term(candidate: Candidate, link: Node, source: Node, axes: tuple[int, ...]) -> None:
    first, second = given(link, "input"), given(link, "other")
    term = second if first is source else first
    subtracts = canonical(link) is Op.SUB
    scales = given(link, "alpha") != 1
    if first is not source and (subtracts or scales):
        candidate.findings.no(Reason.SCORE_MODIFIED, f"{spelling(link)} negates or scales the scores", link)
    elif isinstance(term, (int, float)):
        return  # softmax does not see a constant shift
    elif not is_tensor(term) or term is source:
        candidate.findings.no(Reason.SCORE_MODIFIED, f"{spelling(link)} changes the scores by a symbolic number", link)
    elif flow.comes_from_product(term):
        text = f"a second product, `{term.name}`, is added to the scores"
        candidate.findings.no(Reason.SCORE_MODIFIED, text, link)
    elif subtracts or scales:
        text = f"`{term.name}` is subtracted from the scores, or scaled as it is added; kernels add nothing"
        candidate.findings.no(Reason.MASK, text, link)
    else:
        _add_mask(candidate, MaskTerm(term, "add", None, link, axes))


def _add_mask(candidate: Candidate, term: MaskTerm) -> None:
    candidate.masks.append(term)
    if is_mixed(term.axes):
        text = "a mask is applied where a view has queries, batch and heads in one dim"
        candidate.findings.no(Reason.LAYOUT, text, term.node)


def _fill_term(link: Node, source: Node, axes: tuple[int, ...]) -> MaskTerm:
    if canonical(link) is Op.MASKED_FILL:
        return MaskTerm(given(link, "mask"), "masked_fill", given(link, "value"), link, axes)
    condition, chosen = given(link, "condition"), given(link, "input")
    if chosen is source:
        return MaskTerm(condition, "keep", given(link, "other"), link, axes)
    return MaskTerm(condition, "masked_fill", chosen, link, axes)


def _outer_axes(candidate: Candidate, found: Product) -> tuple[int, int]:
    """The output axes that only the left and only the right operand has: one of queries, one of keys."""
    left = [axis for axis in found.left.axes if axis < found.rank and axis not in found.right.axes]
    right = [axis for axis in found.right.axes if axis < found.rank and axis not in found.left.axes]
    if not left or not right:
        text = f"the product `{found.node.name}` has no query and key axis of its own"
        raise candidate.findings.dead_end(Reason.PRODUCT, text, found.node)
    return max(left), max(right)


def _renumber(found: Product, outer: tuple[int, int]) -> tuple[Product, tuple[int, ...]]:
    """The product with lead axes 0.., then the left's and the right's own axis, then INNER; and the axes of its
    output.
    """
    lead = [axis for axis in range(found.rank) if axis not in outer]
    numbers = {axis: place for place, axis in enumerate((*lead, *outer))}
    numbers[next(iter(found.contracted))] = INNER

    def renumbered(operand: Operand) -> Operand:
        return Operand(operand.node, tuple(numbers[axis] for axis in operand.axes))

    changed = replace(found, left=renumbered(found.left), right=renumbered(found.right))
    return changed, tuple(numbers[axis] for axis in range(found.rank))


def _assign(candidate: Candidate, found: Product, axes: tuple[int, ...], softmax: Softmax) -> None:
    """Which operand is k: the one that has the axis that softmax normalises."""
    rank, dim = len(axes), softmax.dim
    key = axes[dim] if isinstance(dim, int) and -rank <= dim < rank else None
    if key not in (found.rank - 2, found.rank - 1):
        text = f"softmax over dim {dim} of {rank}, which is no query or key axis; the key axis is dim {rank - 1}"
        raise candidate.findings.dead_end(Reason.SOFTMAX_AXIS, text, softmax.anchor)
    q, k = (found.left, found.right) if key == found.rank - 1 else (found.right, found.left)
    candidate.q, candidate.k, candidate.key = q, k, key
    candidate.row = 2 * found.rank - 3 - key

"""Element rules that map indices: views, casts, slices, gathers, and sums and searches along one dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node

from ..axes import permutation
from ..canonical import Op, canonical, spelling
from ..nodes import argument, is_tensor, shape, source_of, value
from .elements import Elements, Index, Value, rule
from .formulas import ZERO, Unknown, depends_on, need


@rule(Op.COPY, Op.DETACH)
def same(elements: Elements, node: Node, index: Index) -> Value:
    return elements.element(source_of(node), index)


@rule(Op.CAST)
def cast(elements: Elements, node: Node, index: Index) -> Value:
    return elements.cast(elements.element(source_of(node), index), value(node).dtype)


@rule(Op.EXPAND)
def expand(elements: Elements, node: Node, index: Index) -> Value:
    return elements.aligned(source_of(node), index, elements.sizes(node))


@rule(Op.REPEAT)
def repeat(elements: Elements, node: Node, index: Index) -> Value:
    """Followed where a dim has size 1 or is not repeated."""
    counts = argument(node, 1, "repeats", "dims")
    counts = counts if isinstance(counts, (list, tuple)) else node.args[1:]
    own = elements.sizes(source_of(node))
    skipped = len(counts) - len(own)
    need(skipped >= 0, "fewer repeats than dims")
    places = []
    for dim, size in enumerate(own):
        need(size == 1 or elements.expression(counts[skipped + dim]) == 1, "a dim is repeated")
        places.append(ZERO if size == 1 else index[skipped + dim])
    return elements.element(source_of(node), places)


@rule(Op.VIEW)
def view(elements: Elements, node: Node, index: Index) -> Value:
    """Followed where only dims of size 1 come and go, or where all elements are equal."""
    source = source_of(node)
    need(value(node).dtype == value(source).dtype, "a view as another dtype")
    before, after = elements.sizes(source), elements.sizes(node)
    old = [dim for dim, size in enumerate(before) if size != 1]
    new = [dim for dim, size in enumerate(after) if size != 1]
    pairs = list(zip(old, new, strict=False))
    if len(old) != len(new) or not all(elements.prover.equal(before[a], after[b]) for a, b in pairs):
        return elements.uniform(source, f"{spelling(node)} joins or splits dims of the mask")
    places = dict(pairs)
    return elements.element(source, [index[places[dim]] if dim in places else ZERO for dim in range(len(before))])


@rule(Op.PERMUTE)
def permute(elements: Elements, node: Node, index: Index) -> Value:
    order = permutation(node)
    if order is None:
        raise Unknown(f"{spelling(node)} is not followed")
    return elements.element(source_of(node), [index[order.index(dim)] for dim in range(len(order))])


@rule(Op.SELECT, Op.NARROW)
def slice_of_dim(elements: Elements, node: Node, index: Index) -> Value:
    source = source_of(node)
    dim = argument(node, 1, "dim", default=0)
    need(isinstance(dim, int), "a dim that is no number")
    dim %= len(shape(source))
    places, size = list(index), elements.sizes(source)[dim]
    if canonical(node) is Op.SELECT:
        places.insert(dim, start_of(elements, argument(node, 2, "index"), size))
        return elements.element(source, places)
    step = argument(node, 4, "step", default=1) if spelling(node).startswith("slice") else 1
    need(isinstance(step, int) and step > 0, "a step that is no positive number")
    places[dim] = start_of(elements, argument(node, 2, "start", default=0), size) + step * places[dim]
    return elements.element(source, places)


def start_of(elements: Elements, given: Any, size: sympy.Expr) -> sympy.Expr:
    """The first index of a slice, counted from the front. Its sign must be proved."""
    start = ZERO if given is None else elements.expression(given)
    if elements.prover.nonnegative(start):
        return start
    need(elements.prover.nonnegative(-start - 1) and elements.prover.nonnegative(start + size), f"the sign of {start}")
    return start + size


@rule(Op.GETITEM)
def getitem(elements: Elements, node: Node, index: Index) -> Value:
    source = source_of(node)
    need(is_tensor(source), "an element of a tuple")
    keys = _spelled_out(node.args[1], len(shape(source)))
    gathers = [place for place, key in enumerate(keys) if is_tensor(key)]
    remaining, gathered = list(index), _Gather.none()
    if gathers:
        gathered = _Gather.of(elements, node, keys, gathers, remaining)
    sizes, places, out = elements.sizes(source), [], 0
    for place, key in enumerate(keys):
        if key is None:
            out += 1
        elif place in gathers:
            places.append(gathered.position(elements, key))
        elif isinstance(key, slice):
            step = 1 if key.step is None else key.step
            need(isinstance(step, int) and step > 0, "a step that is no positive number")
            places.append(start_of(elements, key.start, sizes[len(places)]) + step * remaining[out])
            out += 1
        else:
            need(isinstance(key, (int, Node)) and not isinstance(key, bool), "an index that is not followed")
            places.append(start_of(elements, key, sizes[len(places)]))
    return elements.element(source, places)


def _spelled_out(given: Any, rank: int) -> list[Any]:
    """The keys of an index with `...` written out."""
    keys = list(given) if isinstance(given, (tuple, list)) else [given]
    if not any(key is Ellipsis for key in keys):
        keys.append(Ellipsis)
    at = next(place for place, key in enumerate(keys) if key is Ellipsis)
    missing = rank - sum(key is not None for key in keys) + 1
    keys[at : at + 1] = [slice(None)] * missing
    need(not any(key is Ellipsis for key in keys), "two ellipses")
    return keys


class _Gather:
    """The part of the output's index that goes into index tensors, and the sizes of those dims."""

    def __init__(self, index: Index, sizes: Sequence[sympy.Expr]):
        self.index, self.sizes = index, sizes

    @classmethod
    def none(cls) -> _Gather:
        return cls((), ())

    @classmethod
    def of(
        cls, elements: Elements, node: Node, keys: list[Any], gathers: list[int], remaining: list[sympy.Expr]
    ) -> _Gather:
        """Takes the dims of the index tensors out of `remaining`."""
        need(all(value(keys[place]).dtype is torch.int64 for place in gathers), "an index tensor that is not int64")
        plain = [key for place, key in enumerate(keys) if place not in gathers]
        need(not any(isinstance(key, (int, Node)) for key in plain), "index tensors beside numbers")
        rank = max(len(shape(keys[place])) for place in gathers)
        together = gathers == list(range(gathers[0], gathers[0] + len(gathers)))
        first = gathers[0] if together else 0
        taken = slice(first, first + rank)
        gathered = cls(tuple(remaining[taken]), elements.sizes(node)[taken])
        del remaining[taken]
        return gathered

    def position(self, elements: Elements, key: Node) -> sympy.Expr:
        """The index that an index tensor holds there."""
        cases = elements.aligned(key, self.index, self.sizes)
        need(isinstance(cases, list) and len(cases) == 1 and isinstance(cases[0][1], sympy.Expr), "an index tensor")
        need(elements.prover.nonnegative(cases[0][1]), "an index tensor that may be negative")
        return cases[0][1]


@rule(Op.CUMSUM)
def cumsum(elements: Elements, node: Node, index: Index) -> Value:
    """Followed where the summed value is constant along the dim: positions from cumsum(ones)."""
    dim = argument(node, 1, "dim") % len(shape(node))
    need(value(node).dtype is torch.int64, f"a cumsum of {value(node).dtype}")
    along = elements.prover.index("sum", elements.sizes(node)[dim])
    cases = elements.numbers(elements.element(source_of(node), [along if d == dim else i for d, i in enumerate(index)]))
    constant = not any(depends_on(item, along) for case in cases for item in case)
    need(constant, "a cumsum of something that changes along its dim")
    return [(condition, leaf * (index[dim] + 1)) for condition, leaf in cases]


@rule(Op.DIFF)
def diff(elements: Elements, node: Node, index: Index) -> Value:
    source, prepend = source_of(node), argument(node, 3, "prepend")
    dim = argument(node, 2, "dim", default=-1) % len(shape(node))
    need(argument(node, 1, "n", default=1) == 1 and argument(node, 4, "append") is None, "diff with n or append")
    need(value(node).dtype is torch.int64, f"diff of {value(node).dtype}")
    prover = elements.prover

    def at(tensor: Node, place: sympy.Expr) -> Value:
        return elements.numbers(elements.element(tensor, [place if d == dim else i for d, i in enumerate(index)]))

    def difference(later: Value, earlier: Value, guard: Any) -> Value:
        return [(prover.all_of(guard, c, e), a - b) for c, a in later for e, b in earlier]

    if prepend is None:
        return difference(at(source, index[dim] + 1), at(source, index[dim]), True)
    need(elements.sizes(prepend)[dim] == 1, "more than one element in front")
    first, cases = prover.at_least_zero(-index[dim]), []
    if first is not False:
        cases += difference(at(source, index[dim]), at(prepend, ZERO), first)
    if first is not True:
        cases += difference(at(source, index[dim]), at(source, index[dim] - 1), prover.negation(first))
    return cases


@rule(Op.CAT)
def concatenation(elements: Elements, node: Node, index: Index) -> Value:
    tensors, prover, dtype = argument(node, 0, "tensors"), elements.prover, value(node).dtype
    dim = argument(node, 1, "dim", default=0) % len(shape(node))
    offset, parts = ZERO, []
    for tensor in tensors:
        place, size = index[dim] - offset, elements.sizes(tensor)[dim]
        inside = prover.all_of(prover.at_least_zero(place), prover.at_least_zero(size - 1 - place))
        offset += size
        if inside is not False:
            element = elements.element(tensor, [place if d == dim else i for d, i in enumerate(index)])
            parts.append((inside, elements.cast(element, dtype)))
    if dtype is torch.bool:
        return prover.any_of(*(prover.all_of(inside, element) for inside, element in parts))
    return [(prover.all_of(inside, condition), leaf) for inside, element in parts for condition, leaf in element]


@rule(Op.ALL, Op.ANY)
def search(elements: Elements, node: Node, index: Index) -> Value:
    """Decided by showing an element that holds, or fails, whatever the other indices are."""
    source, dim, prover = source_of(node), argument(node, 1, "dim"), elements.prover
    need(isinstance(dim, int) and value(node).dtype is torch.bool, f"{spelling(node)} over several dims")
    dim %= len(shape(source))
    along = prover.index("any", elements.sizes(source)[dim])
    places = list(index)
    if argument(node, 2, "keepdim", default=False):
        places[dim] = along
    else:
        places.insert(dim, along)
    sought = elements.cast(elements.element(source, places), torch.bool)
    every = canonical(node) is Op.ALL
    found = prover.exists(prover.negation(sought) if every else sought, along)
    need(found is not None, f"{spelling(node)}() that is not decided")
    return not found if every else found

"""A key mask: which keys each batch element shows, from boolean tensors of the graph. As data, and as nodes.

Knows nothing of bands, fills or scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch.fx import Graph, Node

from ..spec import Size
from .axes import REGROUPED
from .bands import KeyAtom, Unknown
from .builder import Builder
from .candidate import Candidate
from .empty_rows import ProvedTerm
from .expressions import bound
from .nodes import known, shape, value

aten = torch.ops.aten
_KEY = -1  # the axis of keys in a KeyAtom of a KeyMask; batch axes are 0..


@dataclass(frozen=True)
class KeyMask:
    """Key j of batch element b is seen iff all atoms hold there. batch: sizes of the batch axes, joined by the rewrite.

    Each place of an atom has a batch axis, or _KEY, or None where it is fixed.
    """

    atoms: tuple[KeyAtom, ...]
    batch: tuple[Size, ...]
    keys: Size


def key_mask_of(candidate: Candidate, terms: list[ProvedTerm], batch_axes: int) -> KeyMask:
    """The atoms of all masks by the axes of the candidate. Raises Unknown for an atom that differs between heads."""
    assert candidate.k is not None
    atoms = [_by_axis(candidate, found, atom, batch_axes) for found in terms for atom in found.band.key_atoms]
    batch = candidate.lead[:batch_axes]
    return KeyMask(tuple(dict.fromkeys(atoms)), batch, candidate.k.size(candidate.key))


def _by_axis(candidate: Candidate, found: ProvedTerm, atom: KeyAtom, batch_axes: int) -> KeyAtom:
    places = []
    for place in atom.places:
        axis = None if place.axis is None else found.term.axes[place.axis]
        if axis == candidate.key:
            axis = _KEY
        elif axis is not None and axis >= REGROUPED:
            raise Unknown(f"`{atom.node}` hides keys of scores whose batch and head axes are joined or split")
        elif axis is not None and axis >= batch_axes:
            raise Unknown(f"`{atom.node}` hides other keys in each head; a key mask is (batch, keys)")
        places.append(replace(place, axis=axis))
    return replace(atom, places=tuple(places))


class KeyMaskNodes:
    """The key masks of one graph as nodes (batch, keys) of bool, each made once, where its last atom is made."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._made: dict[Any, tuple[Builder, Node]] = {}

    def node(self, mask: KeyMask) -> Node:
        question = (mask.atoms, str(mask.batch), str(mask.keys))
        if question not in self._made:
            self._made[question] = self._make(mask)
        return self._made[question][1]

    def drop_unused(self) -> None:
        """Takes back what no operator reads."""
        for builder, node in self._made.values():
            if not node.users:
                builder.discard()
        self._made.clear()

    def _make(self, mask: KeyMask) -> tuple[Builder, Node]:
        nodes = list(self.graph.nodes)
        last = max((atom.node for atom in mask.atoms), key=nodes.index)
        after = nodes[nodes.index(last) + 1 :]
        before = next(node for node in after if node.op != "placeholder")
        builder = Builder(self.graph, before, like=last)
        with builder.whole_or_nothing():
            seen = reduce(
                lambda left, right: builder.call(aten.logical_and.default, left, right),
                [_spread(builder, mask, atom) for atom in mask.atoms],
            )
            return builder, _joined(builder, mask, seen)


def _spread(builder: Builder, mask: KeyMask, atom: KeyAtom) -> Node:
    """One atom as (batch axes.., keys), of size 1 along axes that it does not have."""
    node: Node = atom.node
    axes: list[int] = []
    for dim, place in reversed(list(enumerate(atom.places))):
        start = bound(builder, _as_size(builder, place.offset), [atom.node])
        if place.axis is None:
            node = builder.call(aten.select.int, node, dim, start)
            continue
        axes.insert(0, place.axis)
        wanted = mask.keys if place.axis == _KEY else mask.batch[place.axis]
        if start != 0 or not known(shape(node)[dim] == wanted):
            node = builder.call(aten.narrow.default, node, dim, start, bound(builder, wanted, [atom.node]))
    order = sorted(range(len(axes)), key=lambda dim: (axes[dim] == _KEY, axes[dim]))
    if order != list(range(len(axes))):
        node = builder.call(aten.permute.default, node, order)
    for place_of, axis in enumerate((*range(len(mask.batch)), _KEY)):
        if axis not in axes:
            node = builder.call(aten.unsqueeze.default, node, place_of)
    return builder.call(aten.logical_not.default, node) if atom.negated else node


def _as_size(builder: Builder, offset: Any) -> Size:
    if offset.is_Integer:
        return int(offset)
    shape_env = builder.shape_env
    hints = {symbol: shape_env.guarding_hint_or_throw(symbol) for symbol in offset.free_symbols}
    size: Size = shape_env.create_symintnode(offset, hint=int(offset.xreplace(hints)))
    return size


def _joined(builder: Builder, mask: KeyMask, node: Node) -> Node:
    """Broadcast to all batch elements and keys, the batch axes as one."""
    full = (*mask.batch, mask.keys)
    if not all(known(own == size) for own, size in zip(shape(node), full, strict=True)):
        sizes = [bound(builder, size, [atom.node for atom in mask.atoms]) for size in full]
        node = builder.call(aten.expand.default, node, sizes)
    if len(mask.batch) > 1:
        node = builder.call(aten.flatten.using_ints, node, 0, len(mask.batch) - 1)
    if not mask.batch:
        node = builder.call(aten.unsqueeze.default, node, 0)
    assert value(node).dtype is torch.bool
    return node

"""Where the gradients of q, k and v end up side by side in one tensor, they are written there at once.

q, k and v are mostly slices of one projection, so autograd joins their gradients again: by `cat`, or as a sum of
scatters into zeros. This module reads such a join off the graph. It decides nothing about memory or kernels: it says
which node would be the whole, and where in it each gradient lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node

aten = torch.ops.aten


@dataclass(frozen=True)
class Packing:
    """`whole` is laid out as its fake; `join` is the same elements, maybe in another order, and read only by `whole`.

    views: by the index of the gradient, fake tensors over the memory of the whole.
    """

    join: Node
    whole: Node
    views: dict[int, Tensor]


def packings(backward: Node) -> list[Packing]:
    """The joins of this flash_backward's results that hold nothing else. `backward.meta["val"]` is a tuple of fakes."""
    paths = [path for user in backward.users if (path := _follow(user, user.args[1])) is not None]
    joins = {path.join: [other for other in paths if other.join is path.join] for path in paths}
    found = (_packing(join, parts) for join, parts in joins.items() if len(parts) > 1)
    return [packing for packing in found if packing is not None]


@dataclass(frozen=True)
class _Path:
    """From one gradient over views to the node that joins it with others."""

    gradient: int
    source: Node
    views: tuple[Node, ...]
    last: Node
    """The value that the join, or its scatter, takes."""
    scatter: Node | None
    join: Node


def _follow(source: Node, gradient: Any) -> _Path | None:
    views, last = _through_views(source)
    user = _only_user(last)
    if user is None:
        return None
    if user.target is aten.cat.default:
        return _Path(gradient, source, views, last, None, user)
    if user.target in _REGIONS and user.args[1] is last and _is_zeros(user.args[0]):
        join = _sum_of(user)
        return None if join is None else _Path(gradient, source, views, last, user, join)
    return None


def _through_views(node: Node) -> tuple[tuple[Node, ...], Node]:
    views: list[Node] = []
    while (user := _only_user(node)) is not None and user.target in _INVERSES:
        views.append(user)
        node = user
    return tuple(views), node


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_zeros(node: Any) -> bool:
    return isinstance(node, Node) and node.target is aten.full.default and bool(node.args[1] == 0)


def _is_sum(node: Node | None) -> bool:
    return node is not None and node.target is aten.add.Tensor and not node.kwargs


def _sum_of(node: Node) -> Node | None:
    """The last of the additions that the node's value goes through, one user each."""
    total = None
    while _is_sum(user := _only_user(node)):
        total = node = user  # type: ignore[assignment]
    return total


def _packing(join: Node, paths: Sequence[_Path]) -> Packing | None:
    """None where the join holds something else too, or where a gradient is no view of the whole."""
    rearranged, end = _through_views(join)
    copy = _only_user(end)
    if copy is not None and copy.target is aten.clone.default:
        whole = copy
        if copy.kwargs.get("memory_format") is not torch.contiguous_format:
            return None
    else:
        whole, rearranged = join, ()
    fake: FakeTensor = whole.meta["val"]
    if any(path.source.meta["val"].dtype != fake.dtype for path in paths):
        return None
    try:
        with fake.fake_mode:
            memory = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
            parts = _parts(join, paths, rearranged, memory)
            views = {path.gradient: _undo(path.views, part) for path, part in zip(paths, parts, strict=False)}
    except (RuntimeError, ValueError):  # a view that would need a copy
        return None
    if not views or any(view.stride(-1) != 1 for view in views.values()):
        return None
    return Packing(join, whole, views)


def _parts(join: Node, paths: Sequence[_Path], rearranged: Sequence[Node], memory: Tensor) -> list[Tensor]:
    """What each path's last view is of the whole; empty where the join holds something else too."""
    if paths[0].scatter is not None:
        return _summed(join, paths, _undo(rearranged, memory))
    inputs = list(join.args[0])  # type: ignore[arg-type]
    if len(inputs) != len(paths) or {*inputs} != {path.last for path in paths}:
        return []
    dim = (join.args[1] if len(join.args) > 1 else join.kwargs.get("dim", 0)) % join.meta["val"].dim()
    if rearranged and _is_stack(rearranged[0], dim, len(inputs)):
        parts = _undo(rearranged[1:], memory).unbind(dim)
    else:
        sizes = [node.meta["val"].shape[dim] for node in inputs]
        parts = _undo(rearranged, memory).split(sizes, dim)
    return [parts[inputs.index(path.last)] for path in paths]


def _is_stack(view: Node, dim: int, count: int) -> bool:
    """Does the view give the inputs of a `cat` along `dim` a dim of their own? `stack` is decomposed so."""
    joined, own = view.args[0].meta["val"].shape, view.meta["val"].shape  # type: ignore[union-attr]
    split = (*joined[:dim], count, joined[dim] // count, *joined[dim + 1 :])
    return len(own) == len(split) and all(size == other for size, other in zip(own, split, strict=True))


def _summed(join: Node, paths: Sequence[_Path], joined: Tensor) -> list[Tensor]:
    """The scatters must cover the whole, each element once: then nothing is added to anything but zero."""
    scatters = [path.scatter for path in paths]
    if _leaves(join) != {*scatters} or len({*scatters}) != len(scatters):
        return []
    regions = [_REGIONS[scatter.target](scatter) for scatter in scatters if scatter is not None]
    if len({dim for dim, _, _ in regions}) != 1:
        return []
    dim = regions[0][0]
    reached: Any = 0
    for _, start, end in sorted(regions, key=lambda region: region[1]):
        if start != reached:
            return []
        reached = end
    if reached != joined.shape[dim]:
        return []
    return [
        joined.select(dim, start) if _removes_dim(scatter) else joined.narrow(dim, start, end - start)
        for scatter, (dim, start, end) in zip(scatters, regions, strict=True)
        if scatter is not None
    ]


def _removes_dim(scatter: Node) -> bool:
    return scatter.target is aten.select_scatter.default


def _leaves(join: Node) -> set[Node]:
    leaves: set[Node] = set()
    for node in join.args:
        leaves |= _leaves(node) if _is_sum(node) else {node}  # type: ignore[arg-type]
    return leaves


def _slice_region(node: Node) -> tuple[int, int, int]:
    """(dim, start, end) of a slice_scatter with step 1; an empty region otherwise."""
    values = dict(zip(("self", "src", "dim", "start", "end", "step"), node.args, strict=False)) | dict(node.kwargs)
    dim = values.get("dim", 0) % node.meta["val"].dim()
    size = node.meta["val"].shape[dim]
    bounds = (values.get("start") or 0, size if values.get("end") is None else values["end"])
    if values.get("step", 1) != 1 or not all(isinstance(bound, int) for bound in (*bounds, size)):
        return dim, 0, 0
    start, end, _ = slice(*bounds).indices(size)
    return dim, start, end


def _select_region(node: Node) -> tuple[int, int, int]:
    _, _, dim, index = node.args
    dim = dim % node.meta["val"].dim()
    size = node.meta["val"].shape[dim]
    if not (isinstance(index, int) and isinstance(size, int)):
        return dim, 0, 0
    return dim, index % size, index % size + 1


_REGIONS: dict[Any, Callable[[Node], tuple[int, int, int]]] = {
    aten.slice_scatter.default: _slice_region,
    aten.select_scatter.default: _select_region,
}


def _undo(views: Sequence[Node], result: Tensor) -> Tensor:
    """The tensor that the views were taken of, as a view of the same memory as their result."""
    for view in reversed(views):
        result = _INVERSES[view.target](view, result)
    return result


def _unpermute(view: Node, result: Tensor) -> Tensor:
    order: Any = view.args[1]
    return result.permute([order.index(dim) for dim in range(len(order))])


def _unshape(view: Node, result: Tensor) -> Tensor:
    return result.view(view.args[0].meta["val"].shape)  # type: ignore[union-attr]


_INVERSES: dict[Any, Callable[[Node, Tensor], Tensor]] = {
    aten.permute.default: _unpermute,
    aten.reshape.default: _unshape,
    aten.view.default: _unshape,
    aten._unsafe_view.default: _unshape,
    aten.unsqueeze.default: _unshape,
    aten.squeeze.dim: _unshape,
    aten.squeeze.dims: _unshape,
    aten.transpose.int: lambda view, result: torch.transpose(result, *view.args[1:]),  # type: ignore[arg-type]
}

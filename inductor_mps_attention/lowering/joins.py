"""Nodes that packed gradients make unnecessary: their value is there already, so their lowering computes nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch._inductor import lowering as inductor_lowering
from torch._inductor.virtualized import V
from torch.fx import Node

from .operands import empty_like_fake, expressions
from .packing import Packing

aten = torch.ops.aten
_JOINING = (aten.cat.default, aten.add.Tensor, aten.clone.default)
_values: WeakKeyDictionary[Any, dict[Node, Any]] = WeakKeyDictionary()


def allocate(packing: Packing) -> dict[int, Any]:
    """One buffer for the whole, whose node has its value with that; boxes over it by the index of the gradient."""
    whole = empty_like_fake(packing.whole.meta["val"])
    values = _values.setdefault(V.graph, {})
    # Nobody reads the join but views on the way to the whole: any order of its elements will do.
    values[packing.join] = inductor_lowering.view(whole, expressions(packing.join.meta["val"].shape))
    values[packing.whole] = whole
    return {index: _view(whole, view) for index, view in packing.views.items()}


@functools.cache
def register() -> bool:
    """Whether Inductor has the hook that asks us before its own lowerings; without it nothing is packed."""
    hooks: dict[Any, Callable[..., Any]] | None = getattr(inductor_lowering, "user_lowerings", None)
    if hooks is None:
        return False
    for operator in _JOINING:
        hooks[operator] = functools.partial(_known_value, hooks.get(operator))
    return True


def _known_value(other: Callable[..., Any] | None, *args: Any, **kwargs: Any) -> Any:
    """The node's value if it is known, else what another user of the hook says; None asks Inductor itself."""
    value = _values.get(V.graph, {}).get(V.graph.current_node)
    if value is None and other is not None:
        return other(*args, **kwargs)
    return value


def _view(whole: Any, fake: Tensor) -> Any:
    sizes, strides = expressions(fake.shape), expressions(fake.stride())
    return inductor_lowering.as_strided(whole, sizes, strides, expressions([fake.storage_offset()])[0])

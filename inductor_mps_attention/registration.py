"""Puts the fusion pass into the default inductor, `torch.compile(model)`, beside whatever passes are there.

Inductor's configuration is no guard of Dynamo's: a function that is already compiled stays as it is, whatever is
registered afterwards. Register before the first call, or call `torch._dynamo.reset()`; a warning names what comes too
early.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch._inductor.config as inductor_config
from torch._inductor.custom_graph_pass import get_custom_graph_passes

from . import lowering
from .compiled_code import compiled_by_inductor
from .config import DEFAULT_INDUCTOR_OPTIONS, Options, overridden, read_options
from .matching.fusion_pass import FusionPass

_compiled_with_pass: WeakSet[types.CodeType] = WeakSet()


def beside(passes: Any, ours: FusionPass) -> Any:
    """A value of `pre_grad_custom_pass`: `passes` in their order, without any other FusionPass, then `ours`."""
    return _as_config((*(p for p in get_custom_graph_passes(passes) if not isinstance(p, FusionPass)), ours))


def register(**options: Any) -> None:
    """Every later `torch.compile` with the default backend goes through the pass; a second call replaces the options.

    Options by their names without prefix, e.g. `register(strict=True)`. From then on one compilation can have its own:
    `torch.compile(model, options={"attention.strict": True})`. Raises InvalidOption. `inner` belongs to the backend and
    is not taken here. Warns of functions that are compiled already.
    """
    before = inductor_config.pre_grad_custom_pass
    during = beside(before, _make_pass(options))
    _prepare(before)
    inductor_config.pre_grad_custom_pass = during


def unregister() -> None:
    """Takes the pass out again and leaves all others. Does nothing if it is not registered."""
    passes = get_custom_graph_passes(inductor_config.pre_grad_custom_pass)
    others = tuple(p for p in passes if not isinstance(p, FusionPass))
    if len(others) != len(passes):
        _compiled_with_pass.update(compiled_by_inductor())
        inductor_config.pre_grad_custom_pass = _as_config(others)


@contextmanager
def registered(**options: Any) -> Iterator[None]:
    """`register` for the length of a with-block; afterwards the configuration is what it was before.

    Passes that other code adds inside the block stay.
    """
    before = inductor_config.pre_grad_custom_pass
    during = beside(before, ours := _make_pass(options))
    _prepare(before)
    inductor_config.pre_grad_custom_pass = during
    try:
        yield
    finally:
        if not _has_pass(before):
            _compiled_with_pass.update(compiled_by_inductor())
        after = inductor_config.pre_grad_custom_pass
        if after is during:
            inductor_config.pre_grad_custom_pass = before
        else:
            known = {id(p) for p in get_custom_graph_passes(during)} | {id(ours)}
            added = [p for p in get_custom_graph_passes(after) if id(p) not in known]
            inductor_config.pre_grad_custom_pass = _as_config((*get_custom_graph_passes(before), *added))


def _prepare(passes: Any) -> None:
    """What the pass needs of Inductor. `passes` are those that were there before."""
    lowering.enable()
    lowering.declare(DEFAULT_INDUCTOR_OPTIONS)
    if _has_pass(passes):
        return
    early = {name: None for code, name in compiled_by_inductor().items() if code not in _compiled_with_pass}
    if early:
        warnings.warn(
            f"mps_attention is registered after torch.compile has compiled {', '.join(early)}: that code stays as it"
            " is. Register before the first call, or call torch._dynamo.reset().",
            stacklevel=4,
        )


def _has_pass(passes: Any) -> bool:
    return any(isinstance(one, FusionPass) for one in get_custom_graph_passes(passes))


def _make_pass(options: dict[str, Any]) -> FusionPass:
    from .errors import InvalidOption

    if "inner" in options:
        raise InvalidOption(
            f"option inner={options['inner']!r} chooses what the backend 'mps_attention' compiles with;"
            " the default inductor takes no such choice"
        )
    return FusionPass(read_options(options), refine=_of_this_compilation)


def _of_this_compilation(options: Options) -> Options:
    """With what `torch.compile(options=...)` says for the graph that is being compiled."""
    return overridden(options, lowering.given(DEFAULT_INDUCTOR_OPTIONS))


def _as_config(passes: tuple[Any, ...]) -> Any:
    """As Inductor's users write it: None for no pass, a single pass bare."""
    if not passes:
        return None
    return passes[0] if len(passes) == 1 else passes

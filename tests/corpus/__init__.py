"""Ways in which attention is written in public PyTorch code, in our own words, and code that looks like it.

    for case in load():                 # load(core=True): without the stretch cases
        function, inputs = case.build("cpu", torch.float32)

A case says whether a fused attention without mask or dropout, perhaps with a band, may replace the code.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Build = Callable[[Any, Any], tuple[Callable[..., Any], tuple[Any, ...]]]
Inputs = Callable[[Any, Any], tuple[Any, ...]]


@dataclass
class Case:
    """build(device, dtype) gives a function or module, and its inputs.

    reason: what the case is about. n: how many attentions must be fused, 0 for a trap. scale: what multiplies q @ k.mT
    between the two products; scale_on_q: it is no number when the graph is compiled. causal, band: causal, or another
    band. kv_heads: heads of k and v where they are repeated for groups. tier: "core" must be right; "stretch" may be
    left unfused by a first version, and is never a trap. grad_only: a trap only where gradients flow. because: a reason
    that a trap must be declined for, None where it need not be found at all. random: no two runs agree. train: build
    the module in training mode. oracle: computed in float64 instead of the function itself, for a function whose casts
    keep it from float64.
    """

    name: str
    build: Build
    should_match: bool
    reason: str
    source: str = ""
    scale: Any = None
    causal: bool = False
    layout: str = "bhsd"
    kv_heads: Any = None
    n: int = 1
    tier: str = "core"
    grad_only: bool = False
    band: bool = False
    scale_on_q: bool = False
    train: bool = False
    because: str | None = None
    random: bool = False
    rounds: bool = False
    dynamo_only: bool = False
    module: str = ""


_CASES: list[Case] = []


def case(should_match: bool, reason: str = "", **facts: Any) -> Callable[[Build], Build]:
    """For a function that builds the case; its name is the case's."""

    def register(build: Build) -> Build:
        facts.setdefault("n", 1 if should_match else 0)
        about = reason or (build.__doc__ or "").strip()
        _CASES.append(Case(build.__name__, build, should_match, about, module=build.__module__, **facts))
        return build

    return register


def matches(name: str, function: Callable[..., Any], inputs: Inputs, **facts: Any) -> None:
    """A function that is an attention, in one line."""
    _add(True, name, function, inputs, facts)


def trap(name: str, function: Callable[..., Any], inputs: Inputs, because: str | None, **facts: Any) -> None:
    """A function that must not be fused, in one line."""
    _add(False, name, function, inputs, facts | {"because": because})


def _add(should_match: bool, name: str, function: Callable[..., Any], inputs: Inputs, facts: dict[str, Any]) -> None:
    facts.setdefault("n", 1 if should_match else 0)
    build = lambda device, dtype: (function, inputs(device, dtype))  # noqa: E731
    _CASES.append(Case(name, build, should_match, name.replace("_", " "), module=function.__module__, **facts))


def load(core: bool | None = None) -> list[Case]:
    """All cases, or those of one tier."""
    if not _CASES:
        for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
            importlib.import_module(f"{__name__}.{module.name}")
    names = [case.name for case in _CASES]
    assert len(names) == len(set(names)), "two cases have one name"
    return [case for case in _CASES if core is None or (case.tier == "core") == core]

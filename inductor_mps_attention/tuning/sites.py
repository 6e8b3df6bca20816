"""The shapes of the attentions that are fused in a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..explanation import explain
from ..matching.preference import shape_of
from .shape import Shape


def shapes_of(fn_or_module: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Shape]:
    """One for each attention that `explain` finds and that would be fused, at the sizes of this call."""
    report = explain(fn_or_module, *args, **kwargs)
    shapes = (shape_of(site.spec) for site in report.sites if site.fused and site.spec is not None)
    return [shape for shape in shapes if shape is not None]

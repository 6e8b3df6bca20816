"""A user's program by its name on the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def load(target: str) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    """(model, args, kwargs) from `module:function`, which is called without arguments and gives these or the first two.

    ValueError where the target is spelled otherwise; what the module raises comes through.
    """
    module, _, function = target.partition(":")
    if not function:
        raise ValueError(f"a program is named as module:function, got {target!r}")
    sys.path.insert(0, "")
    made = getattr(importlib.import_module(module), function)()
    model, args, kwargs = (*made, {})[:3]
    return model, args, kwargs

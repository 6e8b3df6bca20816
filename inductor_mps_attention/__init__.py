"""Fused Metal flash attention, forward and backward, for `torch.compile` on Apple's MPS device.

    model = torch.compile(model, backend="mps_attention")

Every name is loaded at its first use. This module is imported by each `import torch` (through the simulator's entry
point), so it may import nothing heavy, and torch least of all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import simulator as simulator
    from .config import Options as Options
    from .counts import reset_stats as reset_stats
    from .counts import stats as stats
    from .eager import flash_attention as flash_attention
    from .errors import Reason as Reason
    from .errors import Rejection as Rejection
    from .explanation import explain as explain
    from .registration import register as register
    from .registration import registered as registered
    from .registration import unregister as unregister
    from .report import Report as Report
    from .report import Site as Site
    from .spec import AttentionSpec as AttentionSpec
    from .spec import Band as Band

__version__ = "0.1.0"

_HOME = {
    "AttentionSpec": "spec",
    "Band": "spec",
    "Options": "config",
    "Reason": "errors",
    "Rejection": "errors",
    "Report": "report",
    "Site": "report",
    "explain": "explanation",
    "flash_attention": "eager",
    "register": "registration",
    "registered": "registration",
    "reset_stats": "counts",
    "stats": "counts",
    "unregister": "registration",
}

__all__ = ["__version__", "simulator", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name == "simulator":
        return importlib.import_module(".simulator", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""The Metal engine: Metal text runs on the CPU. `compile_shader` is all of it that others need; it is loaded
at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import ShaderAssertionError, ShaderCompileError, ShaderLaunchError
    from .library import ShaderLibrary, compile_shader

__all__ = [
    "ShaderAssertionError",
    "ShaderCompileError",
    "ShaderLaunchError",
    "ShaderLibrary",
    "compile_shader",
]

_MODULE_OF = {
    "ShaderAssertionError": "errors",
    "ShaderCompileError": "errors",
    "ShaderLaunchError": "errors",
    "ShaderLibrary": "library",
    "compile_shader": "library",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value

"""The NVIDIA stand-in: the same Metal text, called in the same way, on a CUDA GPU. It gives true parallelism,
sanitizers, and times that compare kernels on this engine; no time of it is a time of an Apple GPU.

`compile_shader` runs kernels, `compile_check` needs no GPU, `installed` puts the engine in place of torch's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiler import Options
    from .installation import installed
    from .library import ShaderLibrary, compile_check, compile_shader

__all__ = ["Options", "ShaderLibrary", "compile_check", "compile_shader", "installed", "is_available"]

_MODULE_OF = {
    "Options": "compiler",
    "ShaderLibrary": "library",
    "compile_check": "library",
    "compile_shader": "library",
    "installed": "installation",
}


def is_available() -> bool:
    """Whether this machine has NVRTC and an NVIDIA GPU."""
    from . import driver, nvrtc

    return nvrtc.is_available() and driver.is_available()


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value

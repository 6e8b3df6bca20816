"""A simulated "mps" device for Linux: unmodified PyTorch programs and Metal shaders run on it.

This module is imported at every `import torch`, since the entry point `torch.backends` names `autoload`. So
nothing of weight is imported until one of its names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inductor_mps_attention.simulator import nvidia
    from inductor_mps_attention.simulator.device.installation import install, is_installed
    from inductor_mps_attention.simulator.device.memory import peak_memory, reset_peak_memory
    from inductor_mps_attention.simulator.device.shaders import options, reset_shaders, shaders
    from inductor_mps_attention.simulator.errors import CheckError, Report, SimulatorError
    from inductor_mps_attention.simulator.metal import compile_shader
    from inductor_mps_attention.simulator.metal.strict import check_strict

__all__ = [
    "CheckError",
    "Report",
    "SimulatorError",
    "autoload",
    "check_strict",
    "compile_shader",
    "install",
    "is_installed",
    "nvidia",
    "options",
    "peak_memory",
    "reset_peak_memory",
    "reset_shaders",
    "shaders",
]

_MODULE_OF = {
    "CheckError": "errors",
    "Report": "errors",
    "SimulatorError": "errors",
    "check_strict": "metal.strict",
    "compile_shader": "metal",
    "install": "device.installation",
    "is_installed": "device.installation",
    "options": "device.shaders",
    "peak_memory": "device.memory",
    "reset_peak_memory": "device.memory",
    "reset_shaders": "device.shaders",
    "shaders": "device.shaders",
}


def __getattr__(name: str) -> Any:
    if name == "nvidia":
        return importlib.import_module(f"{__name__}.nvidia")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def autoload() -> None:
    """Installs the device if MPS_ATTENTION_SIMULATOR=1. PyTorch calls this at every `import torch`."""
    import os

    if os.environ.get("MPS_ATTENTION_SIMULATOR", "0") in ("", "0"):
        return
    from inductor_mps_attention.simulator.device.installation import install

    install()

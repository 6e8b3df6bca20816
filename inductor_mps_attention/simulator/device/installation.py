"""Makes `device="mps"` work in this process: whether it may, the C++ core, and what Python asks of MPS."""

from __future__ import annotations

import atexit
import sys
import threading
from typing import Any, NoReturn

import torch

from inductor_mps_attention.simulator import settings
from inductor_mps_attention.simulator.device import core as device_core
from inductor_mps_attention.simulator.device.cpp_wrapper import refuse_cpp_wrapper
from inductor_mps_attention.simulator.device.operators import hidden_by_composites, supported_operators
from inductor_mps_attention.simulator.device.processes import patch_reductions
from inductor_mps_attention.simulator.device.settling import settle
from inductor_mps_attention.simulator.device.storage import host_alias, patch_untyped_storage
from inductor_mps_attention.simulator.device.streams import patch_streams
from inductor_mps_attention.simulator.errors import SimulatorError

_DEVICE_NAME = "Simulated MPS"
_CORE_COUNT = 8

_lock = threading.Lock()
_core: device_core.Core | None = None


def install() -> None:
    """Installs the simulated "mps" device. A second call does nothing.

    SimulatorError where there is a real MPS backend or a CUDA device, on other systems than Linux, and
    without a C++ compiler.
    """
    global _core
    with _lock:
        if _core is not None:
            return
        _refuse_other_systems()
        core = device_core.load()
        core.run_whole(hidden_by_composites())
        if not settings.cpu_fallback_wanted():
            core.restrict_operators(supported_operators())
        _patch_bindings()
        patch_untyped_storage(core)
        patch_streams()
        patch_reductions()
        refuse_cpp_wrapper()
        atexit.register(settle)
        _core = core


def is_installed() -> bool:
    """Whether the simulated device is installed in this process."""
    return _core is not None


def installed_core() -> device_core.Core:
    """The loaded core. SimulatorError before `install()`."""
    if _core is None:
        raise SimulatorError("no simulated mps device: call inductor_mps_attention.simulator.install() first")
    return _core


def _refuse_other_systems() -> None:
    if sys.platform == "darwin" or torch.backends.mps.is_built():
        raise SimulatorError("this PyTorch has a real MPS backend, so the simulated mps device is not installed")
    if not sys.platform.startswith("linux"):
        raise SimulatorError(f"the simulated mps device needs Linux, and this is {sys.platform}")
    if torch.cuda.is_available():
        raise SimulatorError(
            "PyTorch takes one accelerator and sees a CUDA device: to install the simulated mps device, "
            "hide it by setting CUDA_VISIBLE_DEVICES to nothing"
        )


def _patch_bindings() -> None:
    """Sets in `torch._C` what only an MPS build has; other `_mps_*` functions exist and reach our hooks."""
    from inductor_mps_attention.simulator.device.shaders import compile_for_device

    bindings: Any = torch._C
    bindings._has_mps = True
    bindings._mps_get_name = lambda: _DEVICE_NAME
    bindings._mps_get_core_count = lambda: _CORE_COUNT
    bindings._mps_compileShader = compile_for_device
    bindings._mps_host_alias_storage = host_alias
    bindings._mps_loadMetalllib = bindings._mps_loadMetallibFromPath = _refuse_metallib
    bindings._mps_isCaptureEnabled = bindings._mps_isCapturing = lambda: False
    bindings._mps_startCapture = bindings._mps_stopCapture = _refuse_capture
    # Answers from before, when there was no device.
    for function in vars(torch.backends.mps).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def _refuse_metallib(_library: bytes | str) -> NoReturn:
    raise SimulatorError(
        "a compiled Metal library (.metallib) cannot run on the simulated mps device, which runs Metal text"
    )


def _refuse_capture(*_name: str) -> NoReturn:
    raise SimulatorError("the simulated mps device has no Metal capture: there is no GPU to trace")

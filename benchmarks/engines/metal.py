"""A Mac's own GPU, by torch.mps."""

from __future__ import annotations

import platform
from typing import Any

import torch

from ..measure import Measurement, wall_clock
from .engine import Call, Engine, EngineUnavailable


class MetalEngine(Engine):
    name = "metal"
    words = "Metal on this Mac"
    device = "mps"
    times_are_meaningful = True

    def __init__(self) -> None:
        super().__init__()
        self._compile = torch.mps.compile_shader

    def facts(self) -> dict[str, Any]:
        name = getattr(torch.backends.mps, "get_name", lambda: platform.processor())()
        cores = getattr(torch.backends.mps, "get_core_count", lambda: None)()
        return {"device": name, "cores": cores, "system": f"macOS {platform.mac_ver()[0]}"}

    def compile_shader(self, text: str) -> Any:
        return self._compile(text)

    def measure(self, call: Call, seconds: float) -> Measurement:
        return wall_clock(call, torch.mps.synchronize, seconds)

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def peak_bytes(self, call: Call) -> int:
        """By the driver's total, which shrinks only when the cache is emptied: the call runs on an empty one."""
        self.synchronize()
        torch.mps.empty_cache()
        before = torch.mps.driver_allocated_memory()
        kept = call()
        self.synchronize()
        peak = torch.mps.driver_allocated_memory() - before
        del kept
        return int(peak)


def make() -> Engine:
    if platform.system() != "Darwin" or not torch.backends.mps.is_available():
        raise EngineUnavailable("the metal engine needs a Mac with an MPS build of PyTorch")
    return MetalEngine()

"""The simulated device on the CPU: its counters and its memory mean something, its times do not."""

from __future__ import annotations

import platform
from typing import Any

import torch

from inductor_mps_attention import simulator

from ..measure import Measurement, wall_clock
from .engine import Call, Engine


class SimulatorEngine(Engine):
    name = "simulator"
    words = "Metal text on the simulator: counts and memory, times without meaning"
    device = "mps"
    times_are_meaningful = False

    def facts(self) -> dict[str, Any]:
        return {"device": f"simulated, {platform.machine()}", "system": platform.system()}

    def compile_shader(self, text: str) -> Any:
        return simulator.compile_shader(text)

    def measure(self, call: Call, seconds: float) -> Measurement:
        return wall_clock(call, torch.mps.synchronize, 0.0)

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def peak_bytes(self, call: Call) -> int:
        simulator.reset_peak_memory()
        before = simulator.peak_memory()
        kept = call()
        peak = simulator.peak_memory() - before
        del kept
        return int(peak)


def make() -> Engine:
    if not simulator.is_installed():
        simulator.install()
    return SimulatorEngine()

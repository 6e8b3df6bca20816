"""The NVIDIA stand-in: times compare kernels of one run with each other, and are not times of an Apple GPU."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import torch

from inductor_mps_attention.simulator import nvidia
from inductor_mps_attention.simulator.nvidia import driver, nvrtc

from ..measure import Measurement, wall_clock
from .engine import Call, Engine, EngineUnavailable

OPTIONS = nvidia.Options(float32="fast")
"""Of all measurements: the engine without re-zeroing, float products on tensor cores. See README.md."""
_REPLAYS = 9
_SLOW_CALLS = 3


class NvidiaEngine(Engine):
    name = "nvidia"
    device = "cuda"
    times_are_meaningful = True

    def __init__(self, options: nvidia.Options) -> None:
        super().__init__()
        self._options = options
        self._facts = asdict(driver.facts())
        self.words = f"Metal text on an {self._facts['name']} stand-in"

    def facts(self) -> dict[str, Any]:
        chosen = {name: value for name, value in asdict(self._options).items() if value}
        return {"device": self._facts["name"]} | self._facts | chosen | {"nvrtc": list(nvrtc.version())}

    def compile_shader(self, text: str) -> Any:
        return nvidia.compile_shader(text, options=self._options)

    def measure(self, call: Call, seconds: float) -> Measurement:
        """Replays of a graph of calls, without the host; what cannot be captured is timed by the host's clock.

        A call that takes longer than `seconds` hides the host by itself, and is timed a few times.
        """
        call()
        self.synchronize()
        once = self._once(call)
        if once > seconds:
            return Measurement(tuple(self._once(call) for _ in range(_SLOW_CALLS)), "device clock, single calls")
        calls = max(1, min(50, int(seconds / _REPLAYS / max(once, 1e-6))))
        graph = self._captured(call, calls)
        if graph is None:
            return wall_clock(call, self.synchronize, seconds)
        graph.replay()
        times = []
        for _ in range(_REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1000 / calls)
        return Measurement(tuple(times), f"{_REPLAYS} replays of a graph of {calls}")

    def _once(self, call: Call) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    def _captured(self, call: Call, calls: int) -> torch.cuda.CUDAGraph | None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for _ in range(calls):
                    call()
        except (RuntimeError, torch.AcceleratorError):
            self.synchronize()
            return None
        return graph

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def peak_bytes(self, call: Call) -> int:
        self.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = call()
        self.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        del kept
        return int(peak)


def make() -> Engine:
    if not nvidia.is_available():
        raise EngineUnavailable("the nvidia engine needs an NVIDIA GPU and NVRTC (pip install nvidia-cuda-nvrtc)")
    if not torch.cuda.is_available():
        raise EngineUnavailable("the nvidia engine's benchmarks need a CUDA build of PyTorch for tensors and timing")
    torch.zeros(1, device="cuda")
    major, minor = driver.facts().capability
    return NvidiaEngine(replace(OPTIONS, architecture=f"{major}{minor}"))

"""Which device the demo runs on, in words, and how its peak memory is read. Knows nothing of models.

On a Mac with MPS this is the real device, everywhere else the simulated one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch

import inductor_mps_attention as ima

SIMULATED = (
    "mps is simulated on this CPU: Metal kernels are executed from their text, no Apple GPU is involved; "
    "times say nothing about a Mac."
)
REAL = "mps is the real device of this Mac; nothing is simulated."


@dataclass(frozen=True)
class DemoDevice:
    """The `mps` device, and whether it is simulated."""

    is_simulated: bool

    @property
    def device(self) -> torch.device:
        """Where the models go."""
        return torch.device("mps")

    @property
    def sentence(self) -> str:
        """What a reader must know before any result."""
        return SIMULATED if self.is_simulated else REAL

    def prepare(self) -> None:
        """Make the device usable. The simulated one is built at its first use on a machine."""
        if self.is_simulated:
            ima.simulator.install()


def find_device() -> DemoDevice:
    """The real `mps` device where there is one, else the simulated one."""
    return DemoDevice(is_simulated=not (sys.platform == "darwin" and torch.backends.mps.is_available()))


def peak_memory_of(work: Callable[[], None], device: DemoDevice) -> int:
    """Bytes of device memory that `work` needs at its peak, above what is allocated before it starts."""
    return _simulated_peak(work) if device.is_simulated else _driver_peak(work)


def _simulated_peak(work: Callable[[], None]) -> int:
    ima.simulator.reset_peak_memory()
    before = ima.simulator.peak_memory()
    work()
    return ima.simulator.peak_memory() - before


def _driver_peak(work: Callable[[], None]) -> int:
    """The growth of what the driver has handed out: torch 2.13 keeps no high-water mark of MPS memory.

    The allocator's pool keeps freed blocks, so after `work` it is about as large as `work` ever needed,
    rounded up to the pool's heaps: an upper bound.
    """
    torch.mps.synchronize()
    torch.mps.empty_cache()
    before = torch.mps.driver_allocated_memory()
    work()
    torch.mps.synchronize()
    return torch.mps.driver_allocated_memory() - before

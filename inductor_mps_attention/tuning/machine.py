"""Whose measurements: chip, operating system, torch. Those of another machine say nothing here and are left alone."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import torch

from .. import simulator


@dataclass(frozen=True)
class Machine:
    """`unit` is what is measured: seconds of a GPU, or cycles that are estimated from the simulator's counters."""

    chip: str
    system: str
    torch: str
    unit: str


SECONDS = "seconds"
COUNTED = "cycles estimated from the simulator's counters"


def here() -> Machine:
    """This machine."""
    if simulator.is_installed():
        return Machine(chip(), platform.system(), torch.__version__, COUNTED)
    return Machine(chip(), f"macOS {platform.mac_ver()[0]}", torch.__version__, SECONDS)


def chip() -> str:
    """The GPU's name, as `Apple M1 Max` or `Simulated MPS`."""
    return str(torch.backends.mps.get_name())

"""Where kernels run: a Mac's GPU, the simulator on the CPU, or the NVIDIA stand-in, all from the same Metal text; or
nowhere, where allocations alone are of interest.
"""

from __future__ import annotations

import importlib

from .engine import Engine

NAMES = ("metal", "simulator", "allocations", "nvidia")


def engine(name: str) -> Engine:
    """The engine of that name, ready to run. Raises EngineUnavailable where this machine lacks it."""
    if name not in NAMES:
        raise ValueError(f"no engine {name!r}; there are {', '.join(NAMES)}")
    made: Engine = importlib.import_module(f"{__name__}.{name}").make()
    return made


__all__ = ["NAMES", "Engine", "engine"]

"""Families of GPUs that get different plans. Names only: what a device is, the caller knows."""

from __future__ import annotations

from enum import Enum


class Family(Enum):
    """GPUs that run a kernel of the same shape best."""

    M1 = "m1"
    """M1 and M2: 208 KB of registers and about 60 KB of threadgroup memory a core, operands staged."""
    M3 = "m3"
    """M3 and M4: registers and threadgroup memory share one pool with the cache; operands come straight from memory."""
    M5 = "m5"
    """M5 without its matrix unit, which kernels of 8x8 products do not reach."""
    STAND_IN = "stand_in"
    """An NVIDIA GPU that executes the text for tests: many registers a thread, limited by the issue of instructions."""


def family_of(device_name: str) -> Family:
    """The family of a device by its name, as `Apple M1 Max`; an unknown one is planned for like the oldest."""
    generations = {"M1": Family.M1, "M2": Family.M1, "M3": Family.M3, "M4": Family.M3, "M5": Family.M5}
    for word in device_name.split():
        if word in generations:
            return generations[word]
    return Family.STAND_IN if "NVIDIA" in device_name else Family.M1

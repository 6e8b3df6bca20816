"""What a device can hold, whose plans it gets, what `tune` chose on it. All who plan for tensors ask here."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from inductor_mps_attention.codegen import APPLE, DeviceLimits, Family, family_of

from ..tuning import store
from ..tuning.current import Tuned, current

_instead: list[DeviceLimits] = []


def limits_of(device: torch.device) -> DeviceLimits:
    """The limits that kernels for tensors of `device` are planned within; the same object each time."""
    if _instead:
        return _instead[-1]
    return _limits(device.type, current())


@contextmanager
def planned_for(limits: DeviceLimits) -> Iterator[None]:
    """A block in which kernels are planned within these limits, wherever their tensors are."""
    _instead.append(limits)
    try:
        yield
    finally:
        _instead.pop()


def kernels_version() -> str:
    """Changes with what kernel texts are made from, with the chip, and with what `tune` measured on it."""
    chip = torch.backends.mps.get_name() if torch.backends.mps.is_available() else None
    return f"{store.kernels()} {chip} {current().digest}"


@functools.lru_cache(maxsize=8)
def _limits(device_type: str, tuned: Tuned) -> DeviceLimits:
    """Devices that no kernel runs on are planned for like the oldest Apple GPU."""
    if device_type == "cuda":
        return replace(APPLE, family=Family.STAND_IN)
    if device_type == "mps":
        return replace(APPLE, family=family_of(torch.backends.mps.get_name()), tuned=tuned.plans)
    return APPLE

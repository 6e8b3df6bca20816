"""Inductor's view of the operators: direct launches of Metal kernels into buffers of its own.

The only folder that touches Inductor's private API, all of it behind `inductor_api.missing`.
"""

from __future__ import annotations

from ..runtime import kernels_version
from .inductor_api import missing
from .options import declare, given, state

KERNELS = "attention.kernels"
"""A setting of Inductor's: what kernels are made from, and what was tuned."""


def enable() -> str | None:
    """Lowers the operators from now on, in this process. None, or why they stay opaque calls under this torch."""
    state(KERNELS, kernels_version())
    reason = missing()
    if reason is None:
        from .operators import register

        register()
    return reason


__all__ = ["declare", "enable", "given", "missing"]

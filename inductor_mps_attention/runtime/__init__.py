"""Compiles rendered Metal text once and launches it on tensors. Knows no operators, no graphs and no matching."""

from inductor_mps_attention.codegen import Rejected, Role

from .compiled import clear
from .device import kernels_version, limits_of, planned_for
from .launch import aligned_rows, backward, forward, problem_of, unsupported
from .loaded import LoadedKernel, load_kernel
from .tally import launches, reset_launches

__all__ = [
    "LoadedKernel",
    "Rejected",
    "Role",
    "aligned_rows",
    "backward",
    "clear",
    "forward",
    "kernels_version",
    "launches",
    "limits_of",
    "load_kernel",
    "planned_for",
    "problem_of",
    "reset_launches",
    "unsupported",
]

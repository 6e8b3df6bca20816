"""Metal text of the attention kernels: Problem -> KernelPlan | Rejected -> KernelSource. Imports no torch."""

from .limits import APPLE, DeviceLimits
from .params import Buffer, Parameter, pack
from .plan import KernelPlan, Rejected, launch_grid, plan, supported
from .problem import Problem, Role
from .render import KernelSource, render

__all__ = [
    "APPLE",
    "Buffer",
    "DeviceLimits",
    "KernelPlan",
    "KernelSource",
    "Parameter",
    "Problem",
    "Rejected",
    "Role",
    "launch_grid",
    "pack",
    "plan",
    "render",
    "supported",
]

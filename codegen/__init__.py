"""Metal text of the attention kernels: Problem -> KernelPlan | Rejected -> KernelSource. Imports no torch."""

from .limits import APPLE, DeviceLimits
from .params import Buffer, Parameter, pack, vector_loaded
from .plan import VECTOR_BYTES, KernelPlan, Rejected, launch_grid, plan, supported
from .problem import Problem, Role
from .render import KernelSource, render

__all__ = [
    "APPLE",
    "VECTOR_BYTES",
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
    "vector_loaded",
]

"""Metal text of the attention kernels: Problem -> KernelPlan | Rejected -> KernelSource. Imports no torch."""

from .bindings import Bindings
from .chips import Family, family_of
from .footprint import VECTOR_BYTES
from .limits import APPLE, MAX_BOUND, DeviceLimits
from .params import Buffer, Parameter, pack, stride_parameters, vector_loaded
from .plan import KernelPlan, Rejected, launch_grid, plan, supported
from .problem import Problem, Role, Split
from .render import KernelSource, render
from .schedule import Scratch, Sizes, Step, backward_steps, forward_steps, hinted
from .tiles import Tiling
from .tuned import TunedPlan

__all__ = [
    "APPLE",
    "MAX_BOUND",
    "VECTOR_BYTES",
    "Bindings",
    "Buffer",
    "DeviceLimits",
    "Family",
    "KernelPlan",
    "KernelSource",
    "Parameter",
    "Problem",
    "Rejected",
    "Role",
    "Scratch",
    "Sizes",
    "Split",
    "Step",
    "Tiling",
    "TunedPlan",
    "backward_steps",
    "family_of",
    "forward_steps",
    "hinted",
    "launch_grid",
    "pack",
    "plan",
    "render",
    "stride_parameters",
    "supported",
    "vector_loaded",
]

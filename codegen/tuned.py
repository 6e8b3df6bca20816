"""What measurements on one device chose in place of the plan table. Data only: who measured and where it is kept, the
caller knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from .problem import Problem, Role
from .tiles import Tiling


@dataclass(frozen=True)
class TunedPlan:
    """The tiling of one role for all problems that share dtype, head dims and bounded sides of the band.

    Kernel text depends on no more than that, so one choice serves all lengths, key masks and alignments.
    """

    role: Role
    dtype: str
    qk_head_dim: int
    v_head_dim: int
    has_lower: bool
    has_upper: bool
    tiling: Tiling

    def is_for(self, problem: Problem, role: Role) -> bool:
        """Whether this is the choice for a role of `problem`."""
        return (self.role, self.dtype, self.qk_head_dim, self.v_head_dim, self.has_lower, self.has_upper) == (
            role,
            problem.dtype,
            problem.qk_head_dim,
            problem.v_head_dim,
            problem.has_lower,
            problem.has_upper,
        )

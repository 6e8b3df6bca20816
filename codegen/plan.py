"""Problem -> KernelPlan or Rejected. A plan is data: all decisions that templates fill in are made here."""

from __future__ import annotations

from dataclasses import dataclass

from . import params, tiles
from .limits import APPLE, DeviceLimits
from .params import Buffer, Parameter
from .problem import DTYPES, FLOAT32, DType, Problem, Role
from .tiles import Tiling

SIMD_WIDTH = 32
FRAGMENT = 8
VECTOR_BYTES = 16
_ALLOCATION = 16  # the compiler rounds each threadgroup array up to 16 bytes


@dataclass(frozen=True)
class Rejected:
    """No kernel for this problem. `limit` is DTYPE, HEAD_DIM, KEY_MASK or THREADGROUP_MEMORY."""

    limit: str
    message: str


@dataclass(frozen=True)
class ThreadgroupArray:
    """One static array of threadgroup memory."""

    name: str
    metal_type: str
    length: int
    element_size: int

    @property
    def allocated_bytes(self) -> int:
        return -(-self.length * self.element_size // _ALLOCATION) * _ALLOCATION


@dataclass(frozen=True)
class KernelPlan:
    """Everything that one kernel text depends on. The same plan gives the same bytes."""

    role: Role
    dtype: DType
    fragment_dtype: DType
    """What the operands of the 8x8 products hold; products always add up in float32."""
    qk_head_dim: int
    v_head_dim: int
    has_lower: bool
    has_upper: bool
    writes_logsumexp: bool
    vector: int
    """Elements that a lane copies at a time: 16 bytes of them, or 1 when inputs may be unaligned."""
    tiling: Tiling
    reversed_blocks: bool
    """Whether blocks of rows are taken from the end: the heaviest must start first."""
    arrays: tuple[ThreadgroupArray, ...]
    buffers: tuple[Buffer, ...]
    """Tensor arguments in order."""
    parameters: tuple[Parameter, ...]
    """Integers of the `constant long* params` argument, which follows the tensors."""
    scalars: tuple[str, ...]
    """Float arguments, after `params`: ("scale",) or ()."""
    evidence: str

    @property
    def threads(self) -> int:
        """Threads of a threadgroup."""
        return self.tiling.simdgroups * SIMD_WIDTH

    @property
    def block_rows(self) -> int:
        """Rows of out, delta, grad_q or grad_k that one threadgroup makes."""
        if self.role is Role.BACKWARD_DELTA:
            return self.tiling.simdgroups
        return self.simdgroup_rows * self.tiling.simdgroups

    @property
    def simdgroup_rows(self) -> int:
        return self.tiling.row_fragments * FRAGMENT

    @property
    def tile_fragments(self) -> int:
        return self.tiling.tile // FRAGMENT

    @property
    def qk_fragments(self) -> int:
        return self.qk_head_dim // FRAGMENT

    @property
    def v_fragments(self) -> int:
        return self.v_head_dim // FRAGMENT

    @property
    def block_products(self) -> int:
        """8x8x8 products of one simdgroup for each 8 streamed rows."""
        qk, v = self.qk_fragments, self.v_fragments
        products = {
            Role.FORWARD: qk + v,
            Role.BACKWARD_DELTA: 0,
            Role.BACKWARD_DQ: 2 * qk + v,
            Role.BACKWARD_DKV: 2 * qk + 2 * v,
        }
        return products[self.role] * self.tiling.row_fragments

    @property
    def qk_pitch(self) -> int:
        """Elements from one staged row to the next; 16 bytes of padding spread the rows over the banks."""
        return self.qk_head_dim + VECTOR_BYTES // self.dtype.size

    @property
    def v_pitch(self) -> int:
        return self.v_head_dim + VECTOR_BYTES // self.dtype.size

    @property
    def staged_widths(self) -> tuple[int, ...]:
        """Distinct widths of staged rows: one copying function is made for each."""
        return tuple(sorted({self.qk_head_dim, self.v_head_dim}))

    @property
    def threadgroup_bytes(self) -> int:
        return sum(array.allocated_bytes for array in self.arrays)

    @property
    def register_bytes(self) -> int:
        """Bytes kept a thread: fragments, accumulators and row statistics alive at once."""
        return _register_bytes(self.role, self.tiling, self.fragment_dtype, self.qk_head_dim, self.v_head_dim)

    @property
    def entry(self) -> str:
        """The kernel's name; it spells the plan, so two plans never share one."""
        band = ("l" if self.has_lower else "") + ("u" if self.has_upper else "") or "full"
        tiling = f"s{self.tiling.simdgroups}r{self.tiling.row_fragments}t{self.tiling.tile}"
        parts = [
            f"flash_{self.role.value}_{self.dtype.short}",
            f"d{self.qk_head_dim}x{self.v_head_dim}",
            band,
            tiling,
            f"v{self.vector}",
        ]
        if self.fragment_dtype != self.dtype:
            parts.append(f"in_{self.fragment_dtype.short}")
        if self.writes_logsumexp:
            parts.append("lse")
        return "_".join(parts)


def plan(
    problem: Problem, role: Role, limits: DeviceLimits = APPLE, *, logsumexp: bool = True
) -> KernelPlan | Rejected:
    """The kernel for one role of `problem`, or why there is none.

    `logsumexp` tells whether forward writes it; other roles ignore it. The two head dims may differ.
    """
    rejected = _unsupported(problem, limits)
    if rejected is not None:
        return rejected
    dtype = DTYPES[problem.dtype]
    head_dim = max(problem.qk_head_dim, problem.v_head_dim)
    row = tiles.choose(role, dtype.size, head_dim)
    if row is None:
        return Rejected("HEAD_DIM", f"head dim {head_dim}; no plan of {role.value} reaches it")
    writes_logsumexp = role is Role.FORWARD and logsumexp
    banded = role is not Role.BACKWARD_DELTA
    has_lower, has_upper = problem.has_lower and banded, problem.has_upper and banded
    buffers = params.buffers(role, dtype, logsumexp=writes_logsumexp)
    made = KernelPlan(
        role=role,
        dtype=dtype,
        fragment_dtype=_fragment_dtype(problem, role, dtype, row.tiling, limits),
        qk_head_dim=problem.qk_head_dim,
        v_head_dim=problem.v_head_dim,
        has_lower=has_lower,
        has_upper=has_upper,
        writes_logsumexp=writes_logsumexp,
        vector=VECTOR_BYTES // dtype.size if problem.aligned and banded else 1,
        tiling=row.tiling,
        reversed_blocks=_reversed_blocks(role, has_lower, has_upper),
        arrays=_arrays(role, row.tiling, dtype, problem),
        buffers=buffers,
        parameters=params.parameters(role, buffers, has_lower=has_lower, has_upper=has_upper),
        scalars=() if role is Role.BACKWARD_DELTA else ("scale",),
        evidence=row.evidence,
    )
    return _over_limits(made, limits) or made


def supported(problem: Problem, limits: DeviceLimits = APPLE) -> Rejected | None:
    """Why some role of `problem` has no kernel, or None when forward and backward all have one."""
    for role in Role:
        answer = plan(problem, role, limits)
        if isinstance(answer, Rejected):
            return answer
    return None


def _unsupported(problem: Problem, limits: DeviceLimits) -> Rejected | None:
    if problem.dtype not in DTYPES:
        return Rejected("DTYPE", f"dtype {problem.dtype}; kernels take {', '.join(DTYPES)}")
    if problem.key_mask:
        return Rejected("KEY_MASK", "the keys are masked by a tensor; kernels take only a band of keys")
    for name, head_dim in (("q and k", problem.qk_head_dim), ("v", problem.v_head_dim)):
        if not 0 < head_dim <= limits.max_head_dim or head_dim % limits.head_dim_step:
            return Rejected(
                "HEAD_DIM",
                f"head dim {head_dim} of {name}; kernels take multiples of {limits.head_dim_step} "
                f"from {limits.head_dim_step} to {limits.max_head_dim}",
            )
    return None


def _over_limits(made: KernelPlan, limits: DeviceLimits) -> Rejected | None:
    if made.threadgroup_bytes <= limits.threadgroup_bytes and made.threads <= limits.max_threads:
        return None
    return Rejected(
        "THREADGROUP_MEMORY",
        f"{made.role.value} takes {made.threadgroup_bytes} bytes of threadgroup memory and {made.threads} "
        f"threads; the device has {limits.threadgroup_bytes} and {limits.max_threads}",
    )


def _fragment_dtype(problem: Problem, role: Role, dtype: DType, tiling: Tiling, limits: DeviceLimits) -> DType:
    """bfloat16 is multiplied as float32 where the registers allow it.

    M1 and M2 have no bfloat16 datapath (matmul at half the float32 rate), no Apple GPU before M5 multiplies
    16-bit fragments faster than float32, and the softmax weights need no second rounding.
    """
    if dtype.name != "bfloat16" or role is Role.BACKWARD_DELTA:
        return dtype
    kept = _register_bytes(role, tiling, FLOAT32, problem.qk_head_dim, problem.v_head_dim)
    return FLOAT32 if kept <= limits.register_bytes else dtype


def _reversed_blocks(role: Role, has_lower: bool, has_upper: bool) -> bool:
    """An upper bound alone leaves most work to late queries and early keys, a lower bound to the others."""
    if role is Role.BACKWARD_DKV:
        return has_lower and not has_upper
    return has_upper and not has_lower


def _arrays(role: Role, tiling: Tiling, dtype: DType, problem: Problem) -> tuple[ThreadgroupArray, ...]:
    if role is Role.BACKWARD_DELTA:
        return ()
    padding = VECTOR_BYTES // dtype.size
    names = ("query_tile", "grad_tile") if role is Role.BACKWARD_DKV else ("key_tile", "value_tile")
    widths = (problem.qk_head_dim, problem.v_head_dim)
    staged = tuple(
        ThreadgroupArray(name, dtype.metal, tiling.tile * (width + padding), dtype.size)
        for name, width in zip(names, widths, strict=True)
    )
    if role is not Role.BACKWARD_DKV:
        return staged
    return staged + tuple(ThreadgroupArray(name, "float", tiling.tile, 4) for name in ("shift_tile", "delta_tile"))


def _register_bytes(role: Role, tiling: Tiling, fragment: DType, qk_head_dim: int, v_head_dim: int) -> int:
    # A lane holds two of the 64 elements of an 8x8 matrix.
    operand, total = 2 * fragment.size, 2 * FLOAT32.size
    qk, v, streamed = qk_head_dim // FRAGMENT, v_head_dim // FRAGMENT, tiling.tile // FRAGMENT
    kept = {
        Role.FORWARD: qk * operand + v * total + streamed * (total + operand) + 8,
        Role.BACKWARD_DELTA: 8,
        Role.BACKWARD_DQ: (qk + v) * operand + qk * total + 2 * total + operand + 8,
        Role.BACKWARD_DKV: (qk + v) * (operand + total) + 2 * total + 2 * operand,
    }
    return kept[role] * tiling.row_fragments


def launch_grid(
    plan: KernelPlan, batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """(threads, group_size) of a launch; threads are whole threadgroups, heads are the fastest axis.

    A size of 0 in `threads` means that there is nothing to write: do not launch. A length of 0 on the other
    side is launched, and writes zeros.
    """
    rows, owners = (kv_len, kv_heads) if plan.role is Role.BACKWARD_DKV else (q_len, heads)
    blocks = -(-rows // plan.block_rows)
    return (owners * plan.threads, blocks, batch), (plan.threads, 1, 1)

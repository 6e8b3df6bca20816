"""Problem -> KernelPlan or Rejected. A plan is data: all decisions that templates fill in are made here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from . import decode, footprint, params, plan_table
from .footprint import FRAGMENT, SIMD_WIDTH, VECTOR_BYTES, Shape, ThreadgroupArray, fragments_of, pitch_of
from .limits import APPLE, DeviceLimits
from .params import Buffer, Parameter
from .plan_table import TableRow
from .problem import DTYPES, FLOAT32, DType, Problem, Role
from .tiles import Tiling
from .units import Unit, key_units, reads, value_units

GROUP_ROLES = (Role.BACKWARD_DKV, Role.BACKWARD_SUM)
"""Roles that own keys, and make their gradients."""


@dataclass(frozen=True)
class Rejected:
    """No kernel for this problem. `limit` is DTYPE, HEAD_DIM or THREADGROUP_MEMORY."""

    limit: str
    message: str


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
    key_mask: bool
    writes_logsumexp: bool
    key_grad: bool
    """Whether BACKWARD_DKV or BACKWARD_SUM makes grad_k; False for other roles."""
    value_grad: bool
    """Whether BACKWARD_DKV or BACKWARD_SUM makes grad_v; False for other roles."""
    group_heads: int
    """Query heads of a part, where BACKWARD_DKV makes parts; 0 where it does not and for roles without them."""
    score_chains: int
    """Sums that scores are added up in over the head dim: as in the forward, for float32, so that a score that was a
    row's maximum meets exactly the logsumexp that was made of it."""
    vector: int
    """Elements that a lane copies at a time: 16 bytes of them, or 1 when inputs may be unaligned or rows are ragged."""
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
    evidence: str = field(compare=False)

    @property
    def shape(self) -> Shape:
        one = self.role is Role.BACKWARD_DKV
        grads = (self.key_grad, self.value_grad) if one else (True, True)
        return Shape(self.dtype, self.qk_head_dim, self.v_head_dim, *grads)

    @property
    def threads(self) -> int:
        """Threads of a threadgroup."""
        return self.tiling.simdgroups * SIMD_WIDTH

    @property
    def block_rows(self) -> int:
        """Rows of out, delta, grad_q or grad_k that one threadgroup makes, or has a part of."""
        if self.role is Role.DECODE:
            return self.simdgroup_rows
        if self.role in (Role.DECODE_MERGE, Role.BACKWARD_SUM):
            return self.tiling.simdgroups
        return self.simdgroup_rows * (self.tiling.simdgroups // self.tiling.sharing)

    @property
    def simdgroup_rows(self) -> int:
        return self.tiling.row_fragments * FRAGMENT

    @property
    def tile_fragments(self) -> int:
        return self.tiling.tile // FRAGMENT

    @property
    def qk_fragments(self) -> int:
        return fragments_of(self.qk_head_dim)

    @property
    def v_fragments(self) -> int:
        return fragments_of(self.v_head_dim)

    @property
    def prefetch(self) -> bool:
        """Whether the next tile waits in registers."""
        return self.tiling.prefetch or self.tiling.double_buffered

    @property
    def natural_scores(self) -> bool:
        """Whether scaled scores keep eager's roundings and unit; 16-bit weights are rounded more than that tells."""
        return self.dtype.size == FLOAT32.size

    @property
    def multiplies(self) -> bool:
        """Whether the kernel has 8x8 fragments at all."""
        return self.role not in (Role.DECODE_MERGE, Role.BACKWARD_SUM)

    @property
    def columns_a_lane(self) -> int:
        """DECODE_MERGE: elements of a row that a lane adds up."""
        return -(-self.v_head_dim // SIMD_WIDTH)

    def part_of(self, width: int) -> int:
        """Forward: fragments of a row of `width` elements that one of the simdgroups sharing it has. Backward: all."""
        return footprint.part_of(width, self.tiling.sharing if self.role is Role.FORWARD else 1)

    def padded(self, width: int) -> int:
        """Columns of a staged row: whole fragments."""
        return footprint.columns_of(self.role, width, self.tiling)

    def own_part(self, width: int) -> int:
        """Backward: fragments of an owned row of `width` elements that one simdgroup holds."""
        return footprint.part_of(width, self.parts)

    def sum_part(self, width: int) -> int:
        """Backward: fragments of a row of gradients of `width` elements that one simdgroup adds up."""
        return footprint.part_of(width, footprint.sum_parts(self.role, self.tiling, self.shape))

    @property
    def parts(self) -> int:
        """Backward: simdgroups that make the same products, each with a part of the head dim."""
        return footprint.own_parts(self.role, self.tiling, self.shape)

    @property
    def own_fragments(self) -> int:
        """Backward: fragments that one of the simdgroups sharing rows holds of each."""
        return max(self.own_part(width) for width in self._owned_widths)

    @property
    def uneven_own(self) -> bool:
        """Backward: whether some simdgroup holds fewer."""
        return any(fragments_of(width) != self.own_fragments * self.parts for width in self._owned_widths)

    @property
    def _owned_widths(self) -> tuple[int, ...]:
        return (self.qk_head_dim, self.v_head_dim) if self.needs_weight_gradients else (self.qk_head_dim,)

    @property
    def summed_widths(self) -> tuple[int, ...]:
        """Backward: distinct head dims of the gradients that the kernel makes."""
        dq = self.role is Role.BACKWARD_DQ
        made = ((self.qk_head_dim, dq or self.key_grad), (self.v_head_dim, not dq and self.value_grad))
        return tuple(sorted({width for width, wanted in made if wanted}))

    @property
    def sum_fragments(self) -> int:
        """Backward: fragments of gradients that one simdgroup adds up in each row, the most of any."""
        return max(self.sum_part(width) for width in self.summed_widths)

    @property
    def uneven_sums(self) -> bool:
        """Backward: whether some simdgroup that shares rows adds up fewer."""
        parts = footprint.sum_parts(self.role, self.tiling, self.shape)
        return any(fragments_of(width) != self.sum_fragments * parts for width in self.summed_widths)

    @property
    def exchanged_elements(self) -> int:
        """Backward: products that simdgroups sharing rows put into threadgroup memory, of one set of rows."""
        return footprint.exchanging(self.role, self.tiling, self.shape) * self.score_elements

    @property
    def one_gives(self) -> bool:
        """Backward: whether, of simdgroups sharing rows, only that which makes scores puts its products there."""
        return footprint.exchanging(self.role, self.tiling, self.shape) == 1

    @property
    def statistics(self) -> int:
        """BACKWARD_DKV: queries of a tile whose logsumexp and delta one lane has; 1 or 2."""
        return -(-self.tiling.tile // SIMD_WIDTH)

    @property
    def blocks(self) -> int:
        """Backward: blocks of 8 streamed rows whose products are made together."""
        return self.tile_fragments if self.tiling.sharing > 1 else self.tiling.blocks

    @property
    def loads_rows(self) -> bool:
        """Whether owned rows go straight from device memory into fragments, whole or by the forward's parts."""
        return self.role is Role.FORWARD or (self.tiling.sharing == 1 and not self.tiling.once)

    @property
    def stores_rows(self) -> bool:
        """Whether a simdgroup stores whole rows, or the forward's parts of them."""
        return self.role is Role.FORWARD or self.tiling.sharing == 1

    @property
    def stored_type(self) -> str:
        """Backward and forward: what a kernel stores of its rows, as the text names it; parts stay float."""
        return "float" if self.group_heads else "element"

    @property
    def needs_weight_gradients(self) -> bool:
        """Whether products of grad_out and v are made, and delta is read: for all but grad_v alone."""
        return self.role is not Role.BACKWARD_DKV or self.key_grad

    def units_a_thread(self, width: int) -> int:
        """Copies of `vector_of(width)` elements by which a thread helps to stage a tile."""
        return -(-self.tiling.tile * self.padded(width) // self.vector_of(width) // self.threads)

    @property
    def score_elements(self) -> int:
        """Scores of one simdgroup's rows against a tile."""
        return self.simdgroup_rows * self.tiling.tile

    @property
    def key_units(self) -> tuple[Unit, ...]:
        """How lanes read rows of k, where these are not staged."""
        return key_units(self.qk_head_dim, self.dtype, vector=self.vector_of(self.qk_head_dim) > 1)

    @property
    def value_units(self) -> tuple[Unit, ...]:
        return value_units(self.v_head_dim, self.dtype, vector=self.vector_of(self.v_head_dim) > 1)

    @property
    def reads(self) -> tuple[tuple[int, bool], ...]:
        """(elements, vector) of each reading function that the units need."""
        return reads(self.key_units, self.value_units)

    @property
    def block_products(self) -> int:
        """8x8x8 products of 8 streamed rows (none for delta) with the rows of a simdgroup, or of those that share."""
        qk, v = self.qk_fragments, self.v_fragments
        products = {
            Role.FORWARD: qk + v,
            Role.BACKWARD_DELTA: v,
            Role.BACKWARD_DQ: 2 * qk + v,
            Role.BACKWARD_DKV: qk + self.key_grad * (v + qk) + self.value_grad * v,
            Role.BACKWARD_SUM: 0,
            Role.DECODE: qk + v,
            Role.DECODE_MERGE: 0,
        }
        return products[self.role] * self.tiling.row_fragments

    @property
    def qk_pitch(self) -> int:
        return pitch_of(self.role, self.qk_head_dim, self.dtype, self.tiling)

    @property
    def v_pitch(self) -> int:
        return pitch_of(self.role, self.v_head_dim, self.dtype, self.tiling)

    @property
    def mask_keys(self) -> int:
        """Keys whose key mask is looked at together: a tile, or the keys that a threadgroup owns."""
        return self.block_rows if self.role is Role.BACKWARD_DKV else self.tiling.tile

    @property
    def staged_widths(self) -> tuple[int, ...]:
        """Distinct head dims: one copying function is made for each."""
        return tuple(sorted({self.qk_head_dim, self.v_head_dim}))

    def fragments_of(self, width: int) -> int:
        """8x8 fragments that a row of `width` elements fills, the last one maybe in part."""
        return fragments_of(width)

    def vector_of(self, width: int) -> int:
        """Elements that a lane copies at a time from a row of `width` elements: only whole units of 16 bytes."""
        return self.vector if width % self.vector == 0 else 1

    @property
    def threadgroup_bytes(self) -> int:
        return sum(array.allocated_bytes for array in self.arrays)

    @property
    def register_bytes(self) -> int:
        """Bytes kept a thread: fragments, accumulators and row statistics alive at once."""
        return footprint.register_bytes(self.role, self.tiling, self.fragment_dtype, self.shape)

    @property
    def entry(self) -> str:
        """The kernel's name; it spells the plan, so two plans never share one."""
        band = ("l" if self.has_lower else "") + ("u" if self.has_upper else "") or "full"
        parts = [
            f"flash_{self.role.value}_{self.dtype.short}",
            f"d{self.qk_head_dim}x{self.v_head_dim}",
            band,
            self.tiling.short,
            f"v{self.vector}",
        ]
        if self.key_mask:
            parts.insert(3, "km")
        if self.fragment_dtype != self.dtype:
            parts.append(f"in_{self.fragment_dtype.short}")
        if self.writes_logsumexp:
            parts.append("lse")
        if self.score_chains > 1:
            parts.append(f"c{self.score_chains}")
        if self.key_grad != self.value_grad:
            parts.append("dk" if self.key_grad else "dv")
        if self.group_heads:
            parts.append(f"g{self.group_heads}")
        return "_".join(parts)


def plan(
    problem: Problem,
    role: Role,
    limits: DeviceLimits = APPLE,
    *,
    logsumexp: bool = True,
    key_grad: bool = True,
    value_grad: bool = True,
    tiling: Tiling | None = None,
) -> KernelPlan | Rejected:
    """The kernel for one role of `problem`, or why there is none.

    `logsumexp` tells whether forward writes it, `key_grad` and `value_grad` which of its results BACKWARD_DKV makes
    and BACKWARD_SUM adds up; other roles ignore them. The two head dims may differ. `tiling` takes the place of the
    table's choice, to compare candidates.
    """
    rejected = _unsupported(problem, limits)
    if rejected is not None:
        return rejected
    dtype = DTYPES[problem.dtype]
    head_dim = max(problem.qk_head_dim, problem.v_head_dim)
    row = _row(problem, role, limits, tiling)
    if row is None:
        return Rejected("HEAD_DIM", f"head dim {head_dim}; no plan of {role.value} reaches it")
    if problem.key_mask and role in (Role.FORWARD, Role.BACKWARD_DQ):
        # The mask decides which tile is the next, when it is reached.
        row = replace(row, tiling=replace(row.tiling, prefetch=False, double_buffered=False))
    vector = _vector(problem, role, row.tiling, dtype)
    if any(width % vector for width in (problem.qk_head_dim, problem.v_head_dim)) or vector == 1:
        # Single elements would take too many registers on their way.
        row = replace(row, tiling=replace(row.tiling, prefetch=False, double_buffered=False))
    key_grad, value_grad = (made and role in GROUP_ROLES for made in (key_grad, value_grad))
    group_heads = (problem.group_heads or int(role is Role.BACKWARD_SUM)) if role in GROUP_ROLES else 0
    shape = Shape(dtype, problem.qk_head_dim, problem.v_head_dim)
    if role is Role.BACKWARD_DKV:
        shape = replace(shape, key_grad=key_grad, value_grad=value_grad)
        if tiling is None and row.tiling.sharing > 1 and not (key_grad and value_grad):
            row = replace(row, tiling=_of_one_gradient(row.tiling, shape, limits))
    writes_logsumexp = role in (Role.FORWARD, Role.DECODE_MERGE) and logsumexp
    banded = params.sees_keys(role)
    has_lower, has_upper = problem.has_lower and banded, problem.has_upper and banded
    key_mask = problem.key_mask and banded
    buffers = params.buffers(
        role,
        dtype,
        logsumexp=writes_logsumexp,
        key_mask=key_mask,
        key_grad=key_grad,
        value_grad=value_grad,
        parts=bool(group_heads),
    )
    made = KernelPlan(
        role=role,
        dtype=dtype,
        fragment_dtype=_fragment_dtype(role, row.tiling, shape, limits),
        qk_head_dim=problem.qk_head_dim,
        v_head_dim=problem.v_head_dim,
        has_lower=has_lower,
        has_upper=has_upper,
        key_mask=key_mask,
        writes_logsumexp=writes_logsumexp,
        key_grad=key_grad,
        value_grad=value_grad,
        group_heads=group_heads,
        score_chains=_score_chains(problem, role, limits),
        vector=vector,
        tiling=row.tiling,
        reversed_blocks=_reversed_blocks(role, has_lower, has_upper),
        arrays=footprint.arrays(role, row.tiling, shape),
        buffers=buffers,
        parameters=params.parameters(role, buffers, has_lower=has_lower, has_upper=has_upper),
        scalars=("scale",) if banded else (),
        evidence=row.evidence,
    )
    over = _over_limits(made, limits)
    if over is not None and tiling is None and limits.tuned:  # measured without what this problem adds, as a key mask
        table = replace(limits, tuned=())
        return plan(problem, role, table, logsumexp=logsumexp, key_grad=key_grad, value_grad=value_grad)
    return over or made


def _row(problem: Problem, role: Role, limits: DeviceLimits, tiling: Tiling | None) -> TableRow | None:
    """The caller's choice, else that of measurements on the device, else the table's; None where none reaches it."""
    size, head_dim = DTYPES[problem.dtype].size, max(problem.qk_head_dim, problem.v_head_dim)
    if tiling is not None:
        return plan_table.given(limits.family, role, tiling, size, head_dim)
    if role in (Role.DECODE, Role.DECODE_MERGE):
        return TableRow(limits.family, role, size, head_dim, *decode.tiling_of(problem, role, limits))
    measured = next((choice for choice in limits.tuned if choice.is_for(problem, role)), None)
    if measured is not None:
        return plan_table.given(limits.family, role, measured.tiling, size, head_dim, "measured on this device")
    return plan_table.choose(limits.family, role, size, head_dim)


def _score_chains(problem: Problem, role: Role, limits: DeviceLimits) -> int:
    """Where the forward's simdgroups share rows, each adds up the scores of its part of the head dim."""
    if role not in (Role.BACKWARD_DQ, Role.BACKWARD_DKV) or DTYPES[problem.dtype].size != FLOAT32.size:
        return 1
    forward = _row(problem, Role.FORWARD, limits, None)
    return 1 if forward is None else forward.tiling.sharing


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
    for name, head_dim in (("q and k", problem.qk_head_dim), ("v", problem.v_head_dim)):
        if not 0 < head_dim <= limits.max_head_dim:
            return Rejected("HEAD_DIM", f"head dim {head_dim} of {name}; kernels take 1 to {limits.max_head_dim}")
    return None


def _vector(problem: Problem, role: Role, tiling: Tiling, dtype: DType) -> int:
    if not params.sees_keys(role) or (tiling.direct and role not in (Role.FORWARD, Role.DECODE)):
        return 1  # fragments are read element by element
    vector = VECTOR_BYTES // dtype.size
    whole = any(width % vector == 0 for width in (problem.qk_head_dim, problem.v_head_dim))
    return vector if problem.aligned and whole else 1


def _over_limits(made: KernelPlan, limits: DeviceLimits) -> Rejected | None:
    if made.threadgroup_bytes <= limits.threadgroup_bytes and made.threads <= limits.max_threads:
        return None
    return Rejected(
        "THREADGROUP_MEMORY",
        f"{made.role.value} takes {made.threadgroup_bytes} bytes of threadgroup memory and {made.threads} "
        f"threads; the device has {limits.threadgroup_bytes} and {limits.max_threads}",
    )


def _of_one_gradient(tiling: Tiling, shape: Shape, limits: DeviceLimits) -> Tiling:
    """grad_k or grad_v alone: simdgroups share rows only where the registers need it.

    For grad_v two do: they make scores in two parts, as the forward does where it shares rows of float32.
    """
    alone = replace(tiling, sharing=1, row_fragments=1)
    if footprint.register_bytes(Role.BACKWARD_DKV, alone, shape.dtype, shape) <= limits.register_bytes:
        return alone
    return tiling if shape.key_grad else replace(tiling, sharing=2)


def _fragment_dtype(role: Role, tiling: Tiling, shape: Shape, limits: DeviceLimits) -> DType:
    """bfloat16 is multiplied as float32 where the registers allow it.

    M1 and M2 have no bfloat16 datapath (matmul at half the float32 rate), no Apple GPU before M5 multiplies
    16-bit fragments faster than float32, and the softmax weights need no second rounding.
    """
    if shape.dtype.name != "bfloat16" or not params.sees_keys(role):
        return shape.dtype
    kept = footprint.register_bytes(role, tiling, FLOAT32, shape)
    return FLOAT32 if kept <= limits.register_bytes else shape.dtype


def _reversed_blocks(role: Role, has_lower: bool, has_upper: bool) -> bool:
    """An upper bound alone leaves most work to late queries and early keys, a lower bound to the others."""
    if role is Role.BACKWARD_DKV:
        return has_lower and not has_upper
    return role is not Role.DECODE and has_upper and not has_lower


def launch_grid(
    plan: KernelPlan, batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """(threads, group_size) of a launch; threads are whole threadgroups, heads are the fastest axis.

    A size of 0 in `threads` means that there is nothing to write: do not launch. A length of 0 on the other
    side is launched, and writes zeros.
    """
    if plan.role in (Role.DECODE, Role.DECODE_MERGE):
        threads = decode.grid(plan.role, plan.tiling, batch, heads, kv_heads, q_len, kv_len)
        return threads, (plan.threads, 1, 1)
    rows, owners = (kv_len, kv_heads) if plan.role in GROUP_ROLES else (q_len, heads)
    if plan.role is Role.BACKWARD_DKV and plan.group_heads:
        owners *= -(-(heads // kv_heads) // plan.group_heads)
    blocks = -(-rows // plan.block_rows)
    return (owners * plan.threads, blocks, batch), (plan.threads, 1, 1)

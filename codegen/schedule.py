"""Which kernels one forward or backward launches, in which order, with which scratch memory.

Pure data for both callers, the launch on tensors and Inductor's lowering. Sizes are hints: they choose among plans,
and every plan is right for all sizes. Knows no tensors and no devices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from . import decode, grouping
from .limits import APPLE, DeviceLimits
from .params import PARTS, vector_loaded
from .plan import KernelPlan, Rejected, plan
from .problem import Problem, Role, Split


@dataclass(frozen=True)
class Sizes:
    """Sizes of one attention, or a hint at each where they are symbolic."""

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int


@dataclass(frozen=True)
class Parts:
    """ceil(length / each), of a size by its name, which `over` divides first."""

    length: str
    each: int
    over: str | None = None


@dataclass(frozen=True)
class Scratch:
    """A contiguous tensor that one step writes and later ones read; `shape` holds names of `Sizes` and numbers."""

    name: str
    dtype: str
    shape: tuple[str | int | Parts, ...]

    def shape_of(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for these sizes, which are only divided by numbers and rounded up: they may be symbols."""
        return tuple(_size(each, sizes) for each in self.shape)


def _size(size: str | int | Parts, sizes: Mapping[str, int]) -> int:
    if isinstance(size, Parts):
        length = sizes[size.length] if size.over is None else sizes[size.length] // sizes[size.over]
        return -(-length // size.each)
    return sizes[size] if isinstance(size, str) else size


@dataclass(frozen=True)
class Step:
    """One launch. `scratch` is what must be allocated before it."""

    plan: KernelPlan
    scratch: tuple[Scratch, ...] = ()


ROW_STATISTICS = ("batch", "heads", "q_len")


def hinted(problem: Problem, sizes: Sizes) -> Problem:
    """The problem with what sizes decide: whether the forward's keys are split, and the heads of dkv's groups."""
    named = vars(sizes)
    return replace(problem, split=decode.split_of(**named), group_heads=grouping.group_heads_of(**named))


def forward_steps(
    problem: Problem, aligned: Collection[str], limits: DeviceLimits = APPLE, *, logsumexp: bool = True
) -> tuple[Step, ...] | Rejected:
    """The launches that write out, and the logsumexp where it is wanted.

    `aligned`: names of tensors whose rows all start at multiples of 16 bytes; it decides over `problem.aligned`.
    """
    roles = (Role.FORWARD,) if problem.split is None else (Role.DECODE, Role.DECODE_MERGE)
    steps = []
    for role in roles:
        made = plan(_aligned(problem, role, aligned), role, limits, logsumexp=logsumexp)
        if isinstance(made, Rejected):
            return made
        scratch = _parts(problem, problem.split) if role is Role.DECODE and problem.split is not None else ()
        steps.append(Step(made, scratch))
    return tuple(steps)


def _parts(problem: Problem, split: Split) -> tuple[Scratch, ...]:
    """Of each part and row, sums of weighted values, and the maximum and the sum that the weights are relative to."""
    rows = ("batch", Parts("kv_len", split.keys), "heads", "q_len")
    return (
        Scratch("part_sums", "float32", (*rows, problem.v_head_dim)),
        Scratch("part_statistics", "float32", (*rows, 2)),
    )


def backward_steps(
    problem: Problem,
    aligned: Collection[str],
    limits: DeviceLimits = APPLE,
    *,
    wanted: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Step, ...] | Rejected:
    """The launches that write the wanted ones of grad_q, grad_k and grad_v; none if none is wanted."""
    # grad_v alone needs no delta.
    roles = [Role.BACKWARD_DELTA] if wanted[0] or wanted[1] else []
    roles += [Role.BACKWARD_DQ] if wanted[0] else []
    if wanted[1] or wanted[2]:
        roles += [Role.BACKWARD_DKV] if problem.group_heads is None else [Role.BACKWARD_DKV, Role.BACKWARD_SUM]
    steps = []
    for role in roles:
        made = plan(_aligned(problem, role, aligned), role, limits, key_grad=wanted[1], value_grad=wanted[2])
        if isinstance(made, Rejected):
            return made
        steps.append(Step(made, _scratch_of(made)))
    return tuple(steps)


def _scratch_of(made: KernelPlan) -> tuple[Scratch, ...]:
    """What a kernel of the backward writes for those after it."""
    if made.role is Role.BACKWARD_DELTA:
        return (Scratch("delta", "float32", ROW_STATISTICS),)
    if made.role is not Role.BACKWARD_DKV or not made.group_heads:
        return ()
    rows = ("batch", "kv_heads", Parts("heads", made.group_heads, over="kv_heads"), "kv_len")
    widths = {PARTS["grad_k"]: made.qk_head_dim, PARTS["grad_v"]: made.v_head_dim}
    return tuple(
        Scratch(buffer.name, "float32", (*rows, widths[buffer.name])) for buffer in made.buffers if buffer.writable
    )


def _aligned(problem: Problem, role: Role, aligned: Collection[str]) -> Problem:
    return replace(problem, aligned=all(name in aligned for name in vector_loaded(role)))

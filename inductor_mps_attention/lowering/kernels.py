"""The launches of one attention in Inductor's graph: texts with sizes and scale written in, scratch from Inductor.

The counterpart of `runtime.launch`, which does the same with tensors at hand: both follow codegen's schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor.virtualized import V

from inductor_mps_attention.codegen import (
    MAX_BOUND,
    Bindings,
    DeviceLimits,
    KernelPlan,
    Problem,
    Rejected,
    Scratch,
    Sizes,
    Step,
    backward_steps,
    forward_steps,
    hinted,
    launch_grid,
    render,
    stride_parameters,
)

from ..runtime import limits_of
from .expressions import IntegerArguments
from .kernel_call import CPP_ENTRY, KernelCall, Launch
from .operands import empty, rows_aligned, simplified


@dataclass(frozen=True)
class Attention:
    """Inductor's boxes by the names of the kernels' tensors, all with dense rows, and the numbers of one attention."""

    boxes: Mapping[str, Any]
    scale: float
    lower: sympy.Expr | None
    upper: sympy.Expr | None

    @property
    def sizes(self) -> dict[str, sympy.Expr]:
        """The sizes that kernels take, by name."""
        batch, heads, q_len, _ = self.boxes["q"].get_size()
        _, kv_heads, kv_len, _ = self.boxes["k"].get_size()
        named = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "q_len": q_len, "kv_len": kv_len}
        return {name: simplified(size) for name, size in named.items()}

    @property
    def limits(self) -> DeviceLimits:
        """Those of the device that the attention is on."""
        return limits_of(self.boxes["q"].get_device())

    @property
    def problem(self) -> Problem | None:
        """What kernels are made for; None where a head dim is not a number."""
        q, v = self.boxes["q"], self.boxes["v"]
        qk_head_dim, v_head_dim = (simplified(box.get_size()[-1]) for box in (q, v))
        if not (qk_head_dim.is_Integer and v_head_dim.is_Integer):
            return None
        return Problem(
            dtype=str(q.get_dtype()).removeprefix("torch."),
            qk_head_dim=int(qk_head_dim),
            v_head_dim=int(v_head_dim),
            has_lower=self.lower is not None,
            has_upper=self.upper is not None,
            key_mask="key_mask" in self.boxes,
        )

    @property
    def hints(self) -> dict[str, int]:
        """The sizes, or what they were when the graph was traced."""
        return {name: V.graph.sizevars.optimization_hint(size) for name, size in self.sizes.items()}

    def hinted_problem(self, hints: Mapping[str, int]) -> Problem:
        """The problem with what sizes choose among right plans."""
        assert self.problem is not None
        return hinted(self.problem, Sizes(**hints))


def add_forward(attention: Attention, logsumexp: bool) -> None:
    """Adds the launches that write out, and logsumexp where somebody reads it."""
    hints = attention.hints
    # The memory of a split grows with the queries, so their hint is the most that there can be.
    hints["q_len"] = _largest(attention.sizes["q_len"])
    problem = attention.hinted_problem(hints)
    _add(attention, forward_steps(problem, _aligned(attention), attention.limits, logsumexp=logsumexp))


def add_backward(attention: Attention, wanted: tuple[bool, bool, bool]) -> None:
    """Adds the launches that write those of grad_q, grad_k and grad_v that are wanted."""
    problem = attention.hinted_problem(attention.hints)
    _add(attention, backward_steps(problem, _aligned(attention), attention.limits, wanted=wanted))


def _largest(size: sympy.Expr) -> int:
    """The most that the size is known to be; beyond every length where nothing is known."""
    upper = V.graph.sizevars.shape_env.bound_sympy(size).upper
    return int(upper) if upper.is_Integer else MAX_BOUND


def _aligned(attention: Attention) -> frozenset[str]:
    boxes = attention.boxes.items()
    return frozenset(name for name, box in boxes if len(box.get_size()) == 4 and rows_aligned(box))


def _add(attention: Attention, steps: tuple[Step, ...] | Rejected) -> None:
    assert not isinstance(steps, Rejected), steps
    boxes, sizes = dict(attention.boxes), attention.sizes
    for step in steps:
        for scratch in step.scratch:
            boxes[scratch.name] = _allocate(scratch, sizes, boxes["q"].get_device())
        _add_launch(step.plan, attention, boxes)


def _allocate(scratch: Scratch, sizes: Mapping[str, sympy.Expr], device: torch.device) -> Any:
    return empty(_expressions(scratch.shape_of(_symbolic(sizes))), None, getattr(torch, scratch.dtype), device)


def _add_launch(planned: KernelPlan, attention: Attention, boxes: Mapping[str, Any]) -> None:
    integers = IntegerArguments()
    bindings = _bind(planned, attention, boxes, integers)
    source = render(planned, bindings, CPP_ENTRY if V.graph.cpp_wrapper else None)
    threads, group = _grid(planned, attention.sizes)
    if any(size == 0 for size in threads):
        return  # nothing to write
    read = [boxes[buffer.name] for buffer in planned.buffers if not buffer.writable]
    written = [boxes[buffer.name] for buffer in planned.buffers if buffer.writable]
    launch = Launch(planned.role, source, integers.expressions, threads, group)
    KernelCall(launch, read, written, boxes["q"].get_device())


def _bind(planned: KernelPlan, attention: Attention, boxes: Mapping[str, Any], integers: IntegerArguments) -> Bindings:
    values = dict(attention.sizes)
    for name, bound in (("lower", attention.lower), ("upper", attention.upper)):
        if bound is not None:
            values[name] = _clamped(bound)
    for buffer in planned.buffers:
        strides = map(simplified, boxes[buffer.name].get_stride())
        values.update(zip(stride_parameters(buffer.name), strides, strict=False))
    printed = tuple(
        (parameter.name, integers.metal(values[parameter.name])) for parameter in planned.parameters if parameter.read
    )
    return Bindings(integers.names, printed, attention.scale)


def _clamped(bound: sympy.Expr) -> sympy.Expr:
    """Kernels add rows and bounds in 32 bits; no difference of two rows reaches MAX_BOUND."""
    if bound.is_Integer:
        return sympy.Integer(max(-MAX_BOUND, min(int(bound), MAX_BOUND)))
    return sympy.Max(-MAX_BOUND, sympy.Min(bound, MAX_BOUND))


def _grid(planned: KernelPlan, sizes: Mapping[str, sympy.Expr]) -> tuple[tuple[sympy.Expr, ...], tuple[int, ...]]:
    """The planner's own arithmetic, on symbols where sizes are symbolic."""
    threads, group = launch_grid(planned, **_symbolic(sizes))
    return _expressions(threads), group


def _symbolic(sizes: Mapping[str, sympy.Expr]) -> dict[str, Any]:
    """Sizes as integers that codegen computes with, some of them symbols."""
    return {name: V.graph.sizevars.to_symint_or_int(size) for name, size in sizes.items()}


def _expressions(sizes: Iterable[Any]) -> tuple[sympy.Expr, ...]:
    return tuple(simplified(size.node.expr if isinstance(size, torch.SymInt) else size) for size in sizes)

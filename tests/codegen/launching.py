"""Runs the kernels of one attention on CPU tensors, from their text, without operators or device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from inductor_mps_attention.codegen import (
    KernelPlan,
    Problem,
    Rejected,
    Role,
    Split,
    Step,
    backward_steps,
    forward_steps,
    launch_grid,
    pack,
    render,
    stride_parameters,
)
from torch import Tensor

from inductor_mps_attention.simulator import compile_shader
from tests.support import inputs


@dataclass(frozen=True)
class Band:
    """Bounds of the band; None is unbounded."""

    lower: int | None = None
    upper: int | None = None


FULL = Band()
WHOLE = (Role.FORWARD, Role.BACKWARD_DELTA, Role.BACKWARD_DQ, Role.BACKWARD_DKV)
"""The roles of a training step, in order: each sees all keys or all queries."""


@lru_cache(maxsize=64)
def library(text: str, check: str, order: str):
    return compile_shader(text, check=check, order=order)


def run(
    given: list[Tensor],
    *,
    scale: float,
    band: Band = FULL,
    aligned: bool = False,
    key_mask: Tensor | None = None,
    group_heads: int | None = None,
    check: str = "off",
    order: str = "forward",
    edit: Callable[[Role, str], str] = lambda role, text: text,
) -> dict[str, Tensor]:
    """out, logsumexp, delta, grad_q, grad_k, grad_v of [q, k, v, grad_out]; every output is NaN before its launch.

    `edit` may change a kernel's text. Raises CheckError for a fault with check="full".
    """
    q, k, v, grad_out = given
    problem = replace(problem_of(given, band, key_mask=key_mask is not None), group_heads=group_heads)
    names = ("q", "k", "v", "grad_out") if aligned else ()
    forward, backward = forward_steps(problem, names), backward_steps(problem, names)
    assert not isinstance(forward, Rejected)
    assert not isinstance(backward, Rejected)
    tensors = {"q": q, "k": k, "v": v, "grad_out": grad_out, "logsumexp": torch.full(q.shape[:-1], torch.nan)}
    tensors |= {"out": _poisoned(grad_out), "grad_q": _poisoned(q), "grad_k": _poisoned(k), "grad_v": _poisoned(v)}
    if key_mask is not None:
        tensors["key_mask"] = key_mask
    _launch_all((*forward, *backward), tensors, scale, band, check, order, edit)
    return tensors


def decode(
    given: list[Tensor],
    *,
    scale: float,
    split: Split,
    band: Band = FULL,
    aligned: bool = False,
    key_mask: Tensor | None = None,
    check: str = "off",
    order: str = "forward",
) -> dict[str, Tensor]:
    """out and logsumexp of [q, k, v, grad_out] by parts of the keys and their merge; what is written is NaN before."""
    q, k, v, _ = given
    problem = problem_of(given, band, aligned=aligned, key_mask=key_mask is not None, split=split)
    steps = forward_steps(problem, "qkv" if aligned else "")
    assert not isinstance(steps, Rejected)
    tensors = {"q": q, "k": k, "v": v, "out": _poisoned(q.new_empty(*q.shape[:-1], v.shape[-1]))}
    tensors["logsumexp"] = torch.full(q.shape[:-1], torch.nan)
    if key_mask is not None:
        tensors["key_mask"] = key_mask
    _launch_all(steps, tensors, scale, band, check, order)
    return tensors


def _launch_all(
    steps: tuple[Step, ...],
    tensors: dict[str, Tensor],
    scale: float,
    band: Band,
    check: str,
    order: str,
    edit: Callable[[Role, str], str] = lambda role, text: text,
) -> None:
    """Adds each step's scratch, filled with NaN, and launches it."""
    for step in steps:
        for scratch in step.scratch:
            tensors[scratch.name] = torch.full(scratch.shape_of(sizes_of(tensors["q"], tensors["k"])), torch.nan)
        launch(step.plan, tensors, scale, band, edit(step.plan.role, render(step.plan).text), check, order)


def problem_of(
    given: list[Tensor], band: Band, *, aligned: bool = False, key_mask: bool = False, split: Split | None = None
) -> Problem:
    """The question for the planner that [q, k, v, ...] put."""
    q, _, v, *_ = given
    return Problem(
        dtype=str(q.dtype).removeprefix("torch."),
        qk_head_dim=q.shape[-1],
        v_head_dim=v.shape[-1],
        has_lower=band.lower is not None,
        has_upper=band.upper is not None,
        aligned=aligned,
        key_mask=key_mask,
        split=split,
    )


def sizes_of(q: Tensor, k: Tensor) -> dict[str, int]:
    """The sizes that kernels take, by name."""
    return {
        "batch": q.shape[0],
        "heads": q.shape[1],
        "kv_heads": k.shape[1],
        "q_len": q.shape[2],
        "kv_len": k.shape[2],
    }


def launch(
    plan: KernelPlan,
    tensors: dict[str, Tensor],
    scale: float,
    band: Band,
    text: str,
    check: str = "off",
    order: str = "forward",
) -> dict[str, int]:
    """One kernel; returns its counters, {} for an empty grid."""
    sizes = sizes_of(tensors["q"], tensors["k"])
    values = dict(sizes)
    if plan.has_lower and band.lower is not None:
        values["lower"] = band.lower
    if plan.has_upper and band.upper is not None:
        values["upper"] = band.upper
    for buffer in plan.buffers:
        values |= dict(zip(stride_parameters(buffer.name), tensors[buffer.name].stride(), strict=False))
    threads, group_size = launch_grid(plan, **sizes)
    if 0 in threads:
        return {}
    kernel = library(text, check, order)[plan.entry]
    arguments = [tensors[buffer.name] for buffer in plan.buffers]
    scalars = [float(scale) for _ in plan.scalars]
    kernel(*arguments, pack(plan, values), *scalars, threads=threads, group_size=group_size)
    return kernel.counters


def counters(plan: KernelPlan, length: int, band: Band = FULL, check: str = "off") -> dict[str, int]:
    """Of a kernel alone, on one head of `length` queries and keys; what it computes has no meaning."""
    shape = inputs.Shape(1, 1, 1, length, length, plan.qk_head_dim, v_head_dim=plan.v_head_dim)
    made_inputs = inputs.make(shape, getattr(torch, plan.dtype.name), device="cpu")
    tensors = dict(zip(("q", "k", "v", "grad_out"), made_inputs, strict=True))
    for name, like in (("out", "grad_out"), ("grad_q", "q"), ("grad_k", "k"), ("grad_v", "v")):
        tensors[name] = torch.zeros_like(tensors[like])
    tensors |= {name: torch.zeros(1, 1, length) for name in ("logsumexp", "delta")}
    return launch(plan, tensors, 0.1, band, render(plan).text, check)


def _poisoned(like: Tensor) -> Tensor:
    """NaN in the same memory order; contiguous where rows share memory or lie far apart."""
    if 0 in like.stride() or max(like.stride()) > 2**20:
        return torch.full(like.shape, torch.nan, dtype=like.dtype)
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).fill_(torch.nan)

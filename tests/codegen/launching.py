"""Runs all four kernels of one attention on CPU tensors, from their text, without operators or device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from inductor_mps_attention.codegen import KernelPlan, Problem, Role, launch_grid, pack, render
from torch import Tensor

from inductor_mps_attention.simulator import compile_shader

from .plans import made

STRIDE_AXES = ("batch", "head", "row")


@dataclass(frozen=True)
class Band:
    """Bounds of the band; None is unbounded."""

    lower: int | None = None
    upper: int | None = None


FULL = Band()


@lru_cache(maxsize=64)
def library(text: str, check: str, order: str):
    return compile_shader(text, check=check, order=order)


def run(
    inputs: list[Tensor],
    *,
    scale: float,
    band: Band = FULL,
    aligned: bool = False,
    check: str = "off",
    order: str = "forward",
    edit: Callable[[Role, str], str] = lambda role, text: text,
) -> dict[str, Tensor]:
    """out, logsumexp, delta, grad_q, grad_k, grad_v of [q, k, v, grad_out]; every output is NaN before its launch.

    `edit` may change a kernel's text. Raises CheckError for a fault with check="full".
    """
    q, k, v, grad_out = inputs
    problem = Problem(
        dtype=str(q.dtype).removeprefix("torch."),
        qk_head_dim=q.shape[-1],
        v_head_dim=v.shape[-1],
        has_lower=band.lower is not None,
        has_upper=band.upper is not None,
        aligned=aligned,
    )
    tensors = {"q": q, "k": k, "v": v, "grad_out": grad_out}
    tensors |= {"out": _poisoned(grad_out), "grad_q": _poisoned(q), "grad_k": _poisoned(k), "grad_v": _poisoned(v)}
    for name in ("logsumexp", "delta"):
        tensors[name] = torch.full(q.shape[:-1], torch.nan)
    for role in Role:
        plan = made(problem, role)
        launch(plan, tensors, scale, band, edit(role, render(plan).text), check, order)
    return tensors


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
    q, k = tensors["q"], tensors["k"]
    sizes = {
        "batch": q.shape[0],
        "heads": q.shape[1],
        "kv_heads": k.shape[1],
        "q_len": q.shape[2],
        "kv_len": k.shape[2],
    }
    values = dict(sizes)
    if plan.has_lower and band.lower is not None:
        values["lower"] = band.lower
    if plan.has_upper and band.upper is not None:
        values["upper"] = band.upper
    for buffer in plan.buffers:
        if buffer.strided:
            strides = tensors[buffer.name].stride()
            values |= {f"{buffer.name}_{axis}_stride": strides[place] for place, axis in enumerate(STRIDE_AXES)}
    threads, group_size = launch_grid(plan, **sizes)
    if 0 in threads:
        return {}
    kernel = library(text, check, order)[plan.entry]
    arguments = [tensors[buffer.name] for buffer in plan.buffers]
    scalars = [float(scale) for _ in plan.scalars]
    kernel(*arguments, pack(plan, values), *scalars, threads=threads, group_size=group_size)
    return kernel.counters


def _poisoned(like: Tensor) -> Tensor:
    """NaN in the same memory order; contiguous where rows share memory or lie far apart."""
    if 0 in like.stride() or max(like.stride()) > 2**20:
        return torch.full(like.shape, torch.nan, dtype=like.dtype)
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).fill_(torch.nan)

"""Tensors of one attention -> one kernel launch: the problem is read off them, planned, rendered, compiled, called.

Sizes, strides and band bounds are run-time integers, so one compiled kernel serves all lengths and layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch
from torch import Tensor

from inductor_mps_attention.codegen import (
    VECTOR_BYTES,
    KernelPlan,
    KernelSource,
    Problem,
    Rejected,
    Role,
    launch_grid,
    pack,
    plan,
    render,
    supported,
    vector_loaded,
)

from . import compiled, tally


def launch(
    role: Role, tensors: Mapping[str, Tensor], *, scale: float, lower: int | None, upper: int | None
) -> Rejected | None:
    """Launches the role's kernel on the tensors that its plan names; None, or why there is no such kernel.

    tensors: q, k, v and the plan's buffers by name, (batch, heads, length, head_dim) with a last dim of stride 1, row
    statistics (batch, heads, queries) contiguous float32. Written: the plan's writable buffers.
    """
    prepared = _prepare(problem_of(role, tensors, lower, upper), role)
    if isinstance(prepared, Rejected):
        return prepared
    planned, source = prepared
    sizes = _sizes(tensors)
    threads, group = launch_grid(planned, **sizes)
    if 0 in threads:
        return None
    buffers = [tensors[buffer.name] for buffer in planned.buffers]
    values = sizes | {name: bound for name, bound in (("lower", lower), ("upper", upper)) if bound is not None}
    for buffer, tensor in zip(planned.buffers, buffers, strict=True):
        if buffer.strided:
            values.update(_outer_strides(buffer.name, tensor))
    integers = pack(planned, {parameter.name: values[parameter.name] for parameter in planned.parameters})
    kernel = compiled.kernel(source)
    kernel(*buffers, integers, *[scale for _ in planned.scalars], threads=threads, group_size=group)
    tally.count(role)
    return None


def unsupported(dtype: torch.dtype, qk_head_dim: int, v_head_dim: int) -> Rejected | None:
    """Why some role has no kernel for these tensors, or None when forward and backward all have one."""
    return supported(Problem(_name(dtype), qk_head_dim, v_head_dim))


def problem_of(role: Role, tensors: Mapping[str, Tensor], lower: int | None, upper: int | None) -> Problem:
    """What the role's kernel is made for: dtype, head dims, bounded sides of the band, and whether rows are aligned."""
    q, v = tensors["q"], tensors["v"]
    return Problem(
        dtype=_name(q.dtype),
        qk_head_dim=q.shape[3],
        v_head_dim=v.shape[3],
        has_lower=lower is not None,
        has_upper=upper is not None,
        aligned=all(_rows_aligned(tensors[name]) for name in vector_loaded(role)),
    )


@cache
def _prepare(problem: Problem, role: Role) -> tuple[KernelPlan, KernelSource] | Rejected:
    planned = plan(problem, role)
    return planned if isinstance(planned, Rejected) else (planned, render(planned))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _sizes(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    batch, heads, q_len, _ = tensors["q"].shape
    _, kv_heads, kv_len, _ = tensors["k"].shape
    return {"batch": batch, "heads": heads, "kv_heads": kv_heads, "q_len": q_len, "kv_len": kv_len}


def _rows_aligned(tensor: Tensor) -> bool:
    """Does each row start at a multiple of 16 bytes? Buffers do; so the offset and the outer strides decide."""
    step = VECTOR_BYTES // tensor.element_size()
    starts = [stride for stride, size in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True) if size > 1]
    return all(start % step == 0 for start in (tensor.storage_offset(), *starts))


def _outer_strides(name: str, tensor: Tensor) -> dict[str, int]:
    batch, head, row, _ = tensor.stride()
    return {f"{name}_batch_stride": batch, f"{name}_head_stride": head, f"{name}_row_stride": row}

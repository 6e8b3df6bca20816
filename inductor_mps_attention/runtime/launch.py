"""Tensors of one attention -> its kernel launches: the problem is read off them, planned, rendered, compiled, called.

Sizes, strides and band bounds are run-time integers, so one compiled kernel serves all lengths and layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from inductor_mps_attention.codegen import (
    VECTOR_BYTES,
    DeviceLimits,
    KernelPlan,
    KernelSource,
    Problem,
    Rejected,
    Sizes,
    Step,
    backward_steps,
    forward_steps,
    hinted,
    launch_grid,
    pack,
    render,
    stride_parameters,
    supported,
)

from . import compiled, tally
from .device import limits_of

_Launches = tuple[tuple[Step, KernelSource], ...]


def forward(tensors: Mapping[str, Tensor], *, scale: float, lower: int | None, upper: int | None) -> Rejected | None:
    """Writes out, and logsumexp if it is among the tensors; None, or why there is no such kernel.

    tensors: q, k, v, out by name, (batch, heads, length, head_dim) with a last dim of stride 1; logsumexp (batch,
    heads, queries) contiguous float32; key_mask, or not, bool (batch, keys) of any strides, False where a key is not
    seen.
    """
    sizes = _sizes(tensors)
    problem, aligned = hinted(problem_of(tensors, lower, upper), sizes), aligned_rows(tensors)
    launches = _forward_launches(problem, aligned, limits_of(tensors["q"].device), "logsumexp" in tensors)
    return _run(launches, tensors, sizes, scale, lower, upper)


def backward(
    tensors: Mapping[str, Tensor],
    *,
    scale: float,
    lower: int | None,
    upper: int | None,
    wanted: tuple[bool, bool, bool],
) -> Rejected | None:
    """Writes the wanted ones of grad_q, grad_k and grad_v; None, or why there is no such kernel.

    tensors: those of `forward`, all read, with grad_out and the gradients.
    """
    sizes = _sizes(tensors)
    problem, aligned = hinted(problem_of(tensors, lower, upper), sizes), aligned_rows(tensors)
    launches = _backward_launches(problem, aligned, limits_of(tensors["q"].device), wanted)
    return _run(launches, tensors, sizes, scale, lower, upper)


def unsupported(dtype: torch.dtype, qk_head_dim: int, v_head_dim: int) -> Rejected | None:
    """Why some role has no kernel for these tensors, or None when forward and backward all have one."""
    return _supported(Problem(_name(dtype), qk_head_dim, v_head_dim))


def problem_of(tensors: Mapping[str, Tensor], lower: int | None, upper: int | None) -> Problem:
    """What kernels are made for: dtype, head dims, bounded sides of the band, mask. Alignment is `aligned_rows`."""
    q, v = tensors["q"], tensors["v"]
    return Problem(
        dtype=_name(q.dtype),
        qk_head_dim=q.shape[3],
        v_head_dim=v.shape[3],
        has_lower=lower is not None,
        has_upper=upper is not None,
        key_mask="key_mask" in tensors,
    )


def aligned_rows(tensors: Mapping[str, Tensor]) -> frozenset[str]:
    """The tensors whose rows all start at multiples of 16 bytes. Buffers do; so offset and outer strides decide."""
    return frozenset(name for name, tensor in tensors.items() if tensor.dim() == 4 and _rows_aligned(tensor))


def _run(
    launches: _Launches | Rejected,
    tensors: Mapping[str, Tensor],
    sizes: Sizes,
    scale: float,
    lower: int | None,
    upper: int | None,
) -> Rejected | None:
    if isinstance(launches, Rejected):
        return launches
    named, found = vars(sizes), dict(tensors)
    values = named | {name: bound for name, bound in (("lower", lower), ("upper", upper)) if bound is not None}
    for step, source in launches:
        for scratch in step.scratch:
            found[scratch.name] = found["q"].new_empty(scratch.shape_of(named), dtype=getattr(torch, scratch.dtype))
        _launch(step.plan, source, found, values, named, scale)
    return None


def _launch(
    planned: KernelPlan,
    source: KernelSource,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, int],
    sizes: Mapping[str, int],
    scale: float,
) -> None:
    threads, group = launch_grid(planned, **sizes)
    if 0 in threads:
        return
    buffers = [tensors[buffer.name] for buffer in planned.buffers]
    numbers = dict(values)
    for buffer, tensor in zip(planned.buffers, buffers, strict=True):
        numbers.update(zip(stride_parameters(buffer.name), tensor.stride(), strict=False))
    integers = pack(planned, {parameter.name: numbers[parameter.name] for parameter in planned.parameters})
    kernel = compiled.kernel(source)
    kernel(*buffers, integers, *[scale for _ in planned.scalars], threads=threads, group_size=group)
    tally.count(planned.role.value)


# Asked at each call of an operator, and answered by planning every role: 0.3 ms.
_supported = lru_cache(maxsize=4096)(supported)


@lru_cache(maxsize=4096)
def _forward_launches(
    problem: Problem, aligned: frozenset[str], limits: DeviceLimits, logsumexp: bool
) -> _Launches | Rejected:
    return _rendered(forward_steps(problem, aligned, limits, logsumexp=logsumexp))


@lru_cache(maxsize=4096)
def _backward_launches(
    problem: Problem, aligned: frozenset[str], limits: DeviceLimits, wanted: tuple[bool, bool, bool]
) -> _Launches | Rejected:
    return _rendered(backward_steps(problem, aligned, limits, wanted=wanted))


def _rendered(steps: tuple[Step, ...] | Rejected) -> _Launches | Rejected:
    return steps if isinstance(steps, Rejected) else tuple((step, render(step.plan)) for step in steps)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _sizes(tensors: Mapping[str, Tensor]) -> Sizes:
    batch, heads, q_len, _ = tensors["q"].shape
    _, kv_heads, kv_len, _ = tensors["k"].shape
    return Sizes(batch, heads, kv_heads, q_len, kv_len)


def _rows_aligned(tensor: Tensor) -> bool:
    step = VECTOR_BYTES // tensor.element_size()
    starts = [stride for stride, size in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True) if size > 1]
    return all(start % step == 0 for start in (tensor.storage_offset(), *starts))

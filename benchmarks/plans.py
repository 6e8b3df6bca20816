"""Times tilings against each other on the NVIDIA stand-in: the evidence of its rows in codegen/plan_table.py.

Which tilings, data/plans.yaml says. Each kernel is launched alone on inputs of no meaning. What is the fastest here
says little of an Apple GPU, whose plans codegen/ranking.py compares.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from inductor_mps_attention.codegen import (
    DeviceLimits,
    KernelPlan,
    Problem,
    Rejected,
    Role,
    Sizes,
    launch_grid,
    pack,
    plan,
    render,
    stride_parameters,
)
from inductor_mps_attention.codegen.tiles import Tiling

from inductor_mps_attention.runtime import limits_of

from . import records
from .engines.engine import Engine

FILE = Path(__file__).parent / "data" / "plans.yaml"
LENGTHS = {"float16": 4096, "float32": 2048}
PRODUCTS = {Role.FORWARD: 2, Role.BACKWARD_DQ: 3, Role.BACKWARD_DKV: 4}
_HEADS = 8


@dataclass(frozen=True)
class Candidate:
    """One plan, and the length that it is timed at."""

    made: KernelPlan
    length: int

    @property
    def flops(self) -> float:
        """Of all products; of half of them under a causal band."""
        whole = PRODUCTS[self.made.role] * 2.0 * _HEADS * self.length**2 * self.made.qk_head_dim
        return whole / 2 if self.made.has_upper else whole


def candidates(limits: DeviceLimits) -> Iterator[Candidate]:
    """Those of the file, with and without a causal band. Raises ValueError for a tiling that the device cannot hold."""
    listed = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    for dtype, head_dims in listed.items():
        for head_dim, roles in head_dims.items():
            for role, names in roles.items():
                for causal in (False, True):
                    problem = Problem(dtype, head_dim, head_dim, has_upper=causal, aligned=True)
                    for name in names.split():
                        made = plan(problem, Role(role), limits, tiling=Tiling.of(name))
                        if isinstance(made, Rejected):
                            raise ValueError(f"{dtype} D{head_dim} {role} {name}: {made.message}")
                        yield Candidate(made, LENGTHS[dtype])


def measure(engine: Engine, out: Path, seconds: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Times all candidates; writes and gives where that was, and one record each."""
    listed = list(candidates(limits_of(torch.device(engine.device))))
    _compile([render(candidate.made).text for candidate in listed])
    shared = records.environment(engine)
    made = [_measured(engine, candidate, seconds) for candidate in listed]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(record) + "\n" for record in (shared, *made)), encoding="utf-8")
    return shared, made


def _compile(texts: list[str]) -> None:
    """All texts at once, on all cores; the images are kept."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_compile_one, sorted(texts, key=len, reverse=True)))


def _compile_one(text: str) -> None:
    from inductor_mps_attention.simulator import nvidia

    from .engines.nvidia import OPTIONS

    nvidia.compile_check(text, options=OPTIONS)


def _measured(engine: Engine, candidate: Candidate, seconds: float) -> dict[str, Any]:
    made = candidate.made
    kernel = getattr(engine.compile_shader(render(made).text), made.entry)
    taken = engine.measure(_launch(kernel, candidate, engine.device), seconds)
    return {
        "dtype": made.dtype.name,
        "head_dim": made.qk_head_dim,
        "length": candidate.length,
        "role": made.role.value,
        "causal": made.has_upper,
        "tiling": made.tiling.short,
        "seconds": float(f"{taken.median:.4g}"),
        "tflops": round(candidate.flops / taken.median / 1e12, 1),
        "registers": kernel.registers,
        "spilled_bytes": kernel.spilled_bytes,
    }


def _launch(kernel: Any, candidate: Candidate, device: str) -> Any:
    """One launch on B1 H8, without arguments."""
    made, sizes = candidate.made, vars(Sizes(1, _HEADS, _HEADS, candidate.length, candidate.length))
    shape = (1, _HEADS, candidate.length, made.qk_head_dim)
    dtype = getattr(torch, made.dtype.name)
    values = {**sizes, "upper": 0}
    tensors = []
    for buffer in made.buffers:
        if buffer.axes:
            tensors.append(torch.randn(shape, device=device, dtype=dtype))
            values |= zip(stride_parameters(buffer.name), tensors[-1].stride(), strict=False)
        else:  # statistics of rows: a logsumexp that keeps the weights small
            tensors.append(torch.full(shape[:3], 8.0, device=device))
    integers = pack(made, {parameter.name: values[parameter.name] for parameter in made.parameters})
    scale = [made.qk_head_dim**-0.5 for _ in made.scalars]
    threads, group = launch_grid(made, **sizes)
    return lambda: kernel(*tensors, integers, *scale, threads=threads, group_size=group)

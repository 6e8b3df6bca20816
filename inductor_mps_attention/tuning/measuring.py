"""What a candidate takes, and whether it is right.

A candidate runs through the runtime as every attention does, planned within limits that name it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace

import torch
from torch import Tensor

from inductor_mps_attention.codegen import (
    DeviceLimits,
    Problem,
    Rejected,
    Role,
    Step,
    Tiling,
    TunedPlan,
    backward_steps,
    forward_steps,
    hinted,
)

from .. import runtime
from . import candidates
from .gauges import Gauge
from .shape import Shape

AGREEMENT = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""||candidate - table's plan|| / ||table's plan||: two roundings of the budgets that all kernels are held to."""


class Attention:
    """The tensors of one shape on the device, and the launches that write their results."""

    def __init__(self, shape: Shape, gauge: Gauge):
        self.shape = shape
        self._gauge = gauge
        self._tensors = _tensors(shape)
        self._reference: dict[str, Tensor] = {}
        with runtime.planned_for(candidates.limits()):
            self._forward(logsumexp=True)
            self._backward((True, True, True))
        self._reference = {name: self._tensors[name].clone() for name in ("out", "grad_q", "grad_k", "grad_v")}
        self._saved = {name: self._tensors[name].clone() for name in ("out", "logsumexp")}

    def plan(self, role: Role, tiling: Tiling) -> float | None:
        """What a candidate takes, the launch of delta before dq and dkv included. None: its result is wrong."""
        limits = replace(candidates.limits(), tuned=(TunedPlan(role, **asdict(self.shape.family), tiling=tiling),))
        wanted = {Role.BACKWARD_DQ: (True, False, False), Role.BACKWARD_DKV: (False, True, True)}.get(role)
        written = {Role.BACKWARD_DQ: ("grad_q",), Role.BACKWARD_DKV: ("grad_k", "grad_v")}.get(role, ("out",))
        with runtime.planned_for(limits):
            if wanted is None:
                return self._measured(lambda: self._forward(logsumexp=True), self._forward_steps(limits), written)
            self._tensors |= {name: saved.clone() for name, saved in self._saved.items()}
            return self._measured(lambda: self._backward(wanted), self._backward_steps(limits, wanted), written)

    def ours(self, direction: str, plans: tuple[TunedPlan, ...]) -> float | None:
        """What our kernels take with these plans. None where a result is wrong."""
        limits = replace(candidates.limits(), tuned=plans)
        training = direction == "training"
        steps = self._forward_steps(limits, logsumexp=training)
        written: tuple[str, ...] = ("out",)

        def call() -> None:
            self._forward(logsumexp=training)
            if training:
                self._backward((True, True, True))

        if training:
            steps += self._backward_steps(limits, (True, True, True))
            written = ("out", "grad_q", "grad_k", "grad_v")
        with runtime.planned_for(limits):
            return self._measured(call, steps, written)

    def stock(self, direction: str, name: str) -> float | None:
        """What PyTorch takes in eager; None: it is out of memory."""
        return self._gauge.stock(name, self.shape, direction, self._tensors)

    def _measured(self, call: Callable[[], None], steps: tuple[Step, ...], written: tuple[str, ...]) -> float | None:
        for name in written:
            self._tensors[name].fill_(math.nan)
        call()
        budget = AGREEMENT[self.shape.dtype]
        if not all(_distance(self._tensors[name], self._reference[name]) <= budget for name in written):
            return None
        return self._gauge.ours(call, steps)

    def _forward(self, logsumexp: bool) -> None:
        tensors = {name: self._tensors[name] for name in ("q", "k", "v", "out")}
        if logsumexp:
            tensors["logsumexp"] = self._tensors["logsumexp"]
        _must(runtime.forward(tensors, scale=self._scale, lower=self.shape.lower, upper=self.shape.upper))

    def _backward(self, wanted: tuple[bool, bool, bool]) -> None:
        names = [name for name, want in zip(("grad_q", "grad_k", "grad_v"), wanted, strict=True) if want]
        tensors = {name: self._tensors[name] for name in ("grad_out", "q", "k", "v", "out", "logsumexp", *names)}
        bounds = {"lower": self.shape.lower, "upper": self.shape.upper}
        _must(runtime.backward(tensors, scale=self._scale, wanted=wanted, **bounds))

    @property
    def _scale(self) -> float:
        return float(1 / math.sqrt(self.shape.qk_head_dim))

    def _forward_steps(self, limits: DeviceLimits, *, logsumexp: bool = True) -> tuple[Step, ...]:
        problem = hinted(self._problem, self.shape.sizes)
        steps = forward_steps(problem, self._aligned, limits, logsumexp=logsumexp)
        assert not isinstance(steps, Rejected), steps
        return steps

    def _backward_steps(self, limits: DeviceLimits, wanted: tuple[bool, bool, bool]) -> tuple[Step, ...]:
        steps = backward_steps(hinted(self._problem, self.shape.sizes), self._aligned, limits, wanted=wanted)
        assert not isinstance(steps, Rejected), steps
        return steps

    @property
    def _problem(self) -> Problem:
        return runtime.problem_of(self._tensors, self.shape.lower, self.shape.upper)

    @property
    def _aligned(self) -> frozenset[str]:
        return runtime.aligned_rows(self._tensors)


def _tensors(shape: Shape) -> dict[str, Tensor]:
    """Random normal inputs, the same for the same shape, and empty results."""
    generator = torch.Generator().manual_seed(0)
    rows = {"q": (shape.heads, shape.q_len, shape.qk_head_dim), "k": (shape.kv_heads, shape.kv_len, shape.qk_head_dim)}
    rows |= {"v": (shape.kv_heads, shape.kv_len, shape.v_head_dim), "out": (shape.heads, shape.q_len, shape.v_head_dim)}
    like = {"grad_out": "out", "grad_q": "q", "grad_k": "k", "grad_v": "v"}
    made: dict[str, Tensor] = {}
    for name in ("q", "k", "v", "out", *like):
        size = (shape.batch, *rows[like.get(name, name)])
        made[name] = torch.randn(size, generator=generator).to(getattr(torch, shape.dtype)).to("mps")
    made["logsumexp"] = torch.empty((shape.batch, shape.heads, shape.q_len), device="mps")
    return made


def _must(rejected: Rejected | None) -> None:
    assert rejected is None, rejected


def _distance(got: Tensor, reference: Tensor) -> float:
    got, reference = got.cpu().double(), reference.cpu().double()
    return float((got - reference).norm() / reference.norm())

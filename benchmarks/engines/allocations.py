"""The simulated device with its kernels left out: what is allocated, how much and how long, at any length.

Memory needs no values. Programs, autograd, Dynamo, Inductor and its output code run as they are and allocate for real;
a launch of a Metal kernel does nothing, and an operator of PyTorch that computes long allocates its results and leaves
them unwritten. So the peak is the simulator's own, to the byte (a test compares them), without the hours that scores of
8192 x 8192 take on a CPU, and without touching the memory that they lie in.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..measure import Measurement
from . import simulator
from .engine import Call, Engine, EngineUnavailable
from .simulator import SimulatorEngine

_LEFT_OUT = (
    "_softmax",
    "_softmax_backward_data",
    "add.Tensor",
    "add_.Tensor",
    "addmm.out",
    "baddbmm",
    "bmm",
    "bmm.out",
    "copy_",
    "div.Scalar",
    "div.Tensor",
    "masked_fill.Scalar",
    "masked_fill.Tensor",
    "masked_fill_.Scalar",
    "mm",
    "mm.out",
    "mul.Scalar",
    "mul.Tensor",
)
"""Operators that write something of the size of the scores. One that is missing here runs: slower, and as right."""


class AllocationsEngine(SimulatorEngine):
    name = "allocations"
    words = "allocations on the simulated device with the kernels left out: memory alone"

    def compile_shader(self, text: str) -> Any:
        return _Idle()

    def measure(self, call: Call, seconds: float) -> Measurement:
        raise EngineUnavailable("the engine allocations runs no kernel: it measures peak memory alone")

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        from torch._inductor.utils import fresh_cache

        # Inductor's modules hold their kernels, in this process and beyond: none may be found outside this block.
        with fresh_cache(), super().installed(), _operators_left_out():
            torch._dynamo.reset()
            try:
                yield
            finally:
                torch._dynamo.reset()
                gc.collect()


class _Idle:
    """A library whose kernels do nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: None


@contextlib.contextmanager
def _operators_left_out() -> Iterator[None]:
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Oo]verriding a previously registered kernel")
        for name in _LEFT_OUT:
            library.impl(name, _unwritten(name), "MPS")
    try:
        yield
    finally:
        library._destroy()


def _unwritten(name: str) -> Any:
    """The operator without its values: what it would write to, or results as its meta kernel lays them out."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    written = next((a.name for a in operator._schema.arguments if a.alias_info and a.alias_info.is_write), None)

    def call(*args: Any, **kwargs: Any) -> Any:
        if written is not None:
            return kwargs[written] if written in kwargs else args[0]
        results = operator(*pytree.tree_map_only(Tensor, _meta, args), **pytree.tree_map_only(Tensor, _meta, kwargs))
        return pytree.tree_map_only(Tensor, _allocated, results)

    return call


def _meta(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _allocated(meta: Tensor) -> Tensor:
    return torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype, device="mps")


def make() -> Engine:
    simulator.make()
    return AllocationsEngine()

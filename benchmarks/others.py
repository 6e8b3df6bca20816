"""Attention of other projects for Apple GPUs, each measured where it is installed. On a Mac alone: elsewhere they run
on something that is not the engine.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .engines.engine import Engine
from .problem import Problem
from .torch_contestants import Inputs, Torch, Unable


def _installed(engine: Engine, name: str) -> ModuleType:
    if engine.name != "metal":
        raise Unable("needs a Mac's own GPU")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unable(f"{name.split('.')[0]} is not installed") from error


def _refuse_bands(problem: Problem) -> None:
    if problem.lower is not None or (problem.upper is not None and problem.q_len != problem.kv_len):
        raise Unable("measured for full and causal attention over equal lengths alone")


class MpsFlashAttention(Torch):
    """`mps_flash_attn.flash_attention`, which has a backward."""

    def __init__(self, engine: Engine, problem: Problem, given: Inputs):
        super().__init__(engine, problem, given)
        _refuse_bands(problem)
        if problem.heads != problem.kv_heads:
            raise Unable("its keys and values have as many heads as its queries")
        self._attend = _installed(engine, "mps_flash_attn").flash_attention

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = self._attend(q, k, v, is_causal=self._problem.is_causal)
        return out


class Mlx:
    """`mlx.core.fast.scaled_dot_product_attention` and its gradient. A call ends when its arrays are there."""

    def __init__(self, engine: Engine, problem: Problem, given: Inputs):
        _refuse_bands(problem)
        self._mlx: Any = _installed(engine, "mlx.core")
        self._mask = "causal" if problem.is_causal else None
        self._scale = problem.scale
        dtype = getattr(self._mlx, problem.dtype)
        tensors = (given.q, given.k, given.v, given.grad_out)
        self._arrays = [self._mlx.array(tensor.float().cpu().numpy()).astype(dtype) for tensor in tensors]
        self._mlx.eval(*self._arrays)

    def forward(self) -> Array:
        out = self._attend(*self._arrays[:3])
        self._mlx.eval(out)
        return Array(self._mlx, out)

    def save(self) -> None:
        raise Unable("MLX has no backward apart from its forward")

    def backward(self) -> tuple[Array, ...]:
        raise Unable("MLX has no backward apart from its forward")

    def step(self) -> tuple[Array, ...]:
        outs, grads = self._mlx.vjp(lambda q, k, v: [self._attend(q, k, v)], self._arrays[:3], self._arrays[3:])
        self._mlx.eval(*outs, *grads)
        return tuple(Array(self._mlx, array) for array in (*outs, *grads))

    def _attend(self, q: Any, k: Any, v: Any) -> Any:
        return self._mlx.fast.scaled_dot_product_attention(q, k, v, scale=self._scale, mask=self._mask)


@dataclass(frozen=True)
class Array:
    """An array of MLX. Its tensor is made when it is asked for, so that no copy is timed."""

    mlx: Any
    array: Any

    def detach(self) -> Tensor:
        """A float32 tensor on the CPU."""
        return torch.tensor(np.asarray(self.array.astype(self.mlx.float32)))

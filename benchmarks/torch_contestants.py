"""What PyTorch has for one attention, as contestants; and what contestants have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from .engines.engine import Engine
from .problem import Problem


class Unable(Exception):
    """A contestant cannot do this problem on this engine; the message says why."""


@dataclass(frozen=True)
class Inputs:
    """q, grad_out (batch, heads, q_len, head_dim); k, v (batch, kv_heads, kv_len, head_dim); on the engine's device."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad_out: Tensor


class Torch:
    """A function of PyTorch with its autograd, or `attend` alone where no gradient is asked for."""

    def __init__(self, engine: Engine, problem: Problem, given: Inputs):
        if problem.score_elements * problem.element_size > 16 << 30:
            raise Unable("the scores take more than 16 GiB")
        self._problem = problem
        self._given = given
        self._leaves = [tensor.detach().requires_grad_() for tensor in (given.q, given.k, given.v)]
        self._out: Tensor | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self) -> Tensor:
        with torch.no_grad():
            return self.attend(self._given.q, self._given.k, self._given.v)

    def save(self) -> None:
        self._out = self.attend(*self._leaves)

    def backward(self) -> tuple[Tensor, ...]:
        assert self._out is not None
        return torch.autograd.grad(self._out, self._leaves, self._given.grad_out, retain_graph=True)

    def step(self) -> tuple[Tensor, ...]:
        out = self.attend(*self._leaves)
        return (out, *torch.autograd.grad(out, self._leaves, self._given.grad_out))


class Sdpa(Torch):
    """F.scaled_dot_product_attention, whatever it picks on this device."""

    def __init__(self, engine: Engine, problem: Problem, given: Inputs):
        super().__init__(engine, problem, given)
        if problem.lower is not None or (problem.upper is not None and problem.q_len != problem.kv_len):
            raise Unable("no band but causal over equal lengths without a mask")

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        grouped = self._problem.heads != self._problem.kv_heads
        return F.scaled_dot_product_attention(q, k, v, is_causal=self._problem.is_causal, enable_gqa=grouped)


class SdpaMath(Sdpa):
    """F.scaled_dot_product_attention held to its math backend: products and a softmax, half in float32 inside."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return super().attend(q, k, v)


class Manual(Torch):
    """softmax(q @ k.mT * scale + mask) @ v, as people write it."""

    def __init__(self, engine: Engine, problem: Problem, given: Inputs):
        super().__init__(engine, problem, given)
        self._mask = _band_mask(problem, given.q)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self._attend(q, k, v, self._mask)

    def attend_alone(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The same with a mask that is made on the spot."""
        return self._attend(q, k, v, _band_mask(self._problem, q))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
        group = self._problem.heads // self._problem.kv_heads
        if group > 1:
            k, v = (tensor.repeat_interleave(group, 1) for tensor in (k, v))
        scores = q @ k.mT * self._problem.scale
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        return scores.softmax(-1) @ v


class Flex(Torch):
    """flex_attention compiled by Inductor for this device, forward alone."""

    def __init__(self, engine: Engine, problem: Problem, given: Inputs):
        super().__init__(engine, problem, given)
        if engine.device != "mps":
            raise Unable("Inductor's Metal template needs the mps device")
        if problem.lower is not None or (problem.upper is not None and problem.q_len != problem.kv_len):
            raise Unable("measured for full and causal attention alone")
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        self._flex = torch.compile(flex_attention)
        self._blocks: Any = None
        if problem.is_causal:
            self._blocks = create_block_mask(
                lambda b, h, i, j: i >= j, None, None, problem.q_len, problem.kv_len, device=engine.device
            )

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        grouped = self._problem.heads != self._problem.kv_heads
        out: Tensor = self._flex(q, k, v, block_mask=self._blocks, enable_gqa=grouped)
        return out

    def save(self) -> None:
        raise Unable("Inductor's Metal template has no backward")

    def step(self) -> tuple[Tensor, ...]:
        raise Unable("Inductor's Metal template has no backward")


class Compiled(Torch):
    """Hand-written attention through torch.compile: a whole training step as Inductor's code runs it."""

    backend = "mps_attention"
    options: Mapping[str, Any] = {"attention.strict": True}  # never measures what was not fused

    def __init__(self, engine: Engine, problem: Problem, given: Inputs):
        super().__init__(engine, problem, given)
        if engine.device != "mps":
            raise Unable("attention is found on the mps device alone")
        manual = Manual(engine, problem, given)
        torch._dynamo.reset()  # it gives a function up that it has compiled for too many problems
        # The mask is built in the graph, where it can be proved to be a band; a tensor from outside cannot.
        self._compiled = torch.compile(
            manual.attend_alone, backend=self.backend, fullgraph=True, dynamic=False, options=dict(self.options)
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = self._compiled(q, k, v)
        return out


class StockCompiled(Compiled):
    """The same through the default inductor."""

    backend = "inductor"
    options: Mapping[str, Any] = {}


def _band_mask(problem: Problem, q: Tensor) -> Tensor | None:
    """True where a key is not seen: (q_len, kv_len), or None."""
    if problem.lower is None and problem.upper is None:
        return None
    row = torch.arange(problem.q_len, device=q.device)[:, None]
    column = torch.arange(problem.kv_len, device=q.device)[None, :]
    hidden = torch.zeros(problem.q_len, problem.kv_len, dtype=torch.bool, device=q.device)
    if problem.lower is not None:
        hidden = hidden | (column - row < problem.lower)
    if problem.upper is not None:
        hidden = hidden | (column - row > problem.upper)
    return hidden

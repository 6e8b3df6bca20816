"""Who computes one attention: ours, the unfused pipeline, and what PyTorch has. A contestant is prepared for a problem
and gives the calls that are timed; one that cannot do the problem says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from inductor_mps_attention.operators import metal as ours

from . import baseline
from .engines.engine import Engine
from .others import Mlx, MpsFlashAttention
from .problem import Problem
from .torch_contestants import Compiled, Flex, Inputs, Manual, Sdpa, SdpaMath, StockCompiled, Unable

OURS = "fused"


def inputs(engine: Engine, problem: Problem) -> Inputs:
    """Random normal values, the same for the same problem."""
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, problem.dtype)

    def made(heads: int, length: int) -> Tensor:
        shape = (problem.batch, heads, length, problem.head_dim)
        if engine.device == "meta":
            return torch.empty(shape, dtype=dtype, device="meta")
        return torch.randn(shape, generator=generator).to(dtype).to(engine.device)

    q, grad_out = (made(problem.heads, problem.q_len) for _ in range(2))
    k, v = (made(problem.kv_heads, problem.kv_len) for _ in range(2))
    return Inputs(q, k, v, grad_out)


class Contestant(Protocol):
    """One attention, prepared: `forward()` gives out; `backward()` the three gradients from what `save()` kept;
    `step()` out and the gradients. They give tensors, or things whose `detach()` is one.
    """

    def forward(self) -> Any: ...

    def save(self) -> None: ...

    def backward(self) -> tuple[Any, ...]: ...

    def step(self) -> tuple[Any, ...]: ...


class Fused:
    """Our kernels, by the operators' Metal implementation."""

    def __init__(self, engine: Engine, problem: Problem, given: Inputs):
        self._given = given
        self._band = (problem.scale, problem.lower, problem.upper)
        self._saved: tuple[Tensor, Tensor] | None = None

    def _forward(self) -> tuple[Tensor, Tensor]:
        return ours.forward(self._given.q, self._given.k, self._given.v, None, *self._band)

    def _backward(self, out: Tensor, logsumexp: Tensor) -> tuple[Tensor, ...]:
        given = self._given
        saved = (given.q, given.k, given.v, out, logsumexp, None)
        return ours.backward(given.grad_out, *saved, *self._band, [True, True, True])

    def forward(self) -> Tensor:
        return self._forward()[0]

    def save(self) -> None:
        self._saved = self._forward()

    def backward(self) -> tuple[Tensor, ...]:
        assert self._saved is not None
        return self._backward(*self._saved)

    def step(self) -> tuple[Tensor, ...]:
        out, logsumexp = self._forward()
        return (out, *self._backward(out, logsumexp))


class Unfused:
    """The separate kernels of `baseline`; a training step keeps the weights from forward to backward."""

    def __init__(self, engine: Engine, problem: Problem, given: Inputs):
        reason = baseline.refusal(problem, backward=True)
        if reason is not None:
            raise Unable(reason)
        self._given = given
        self._pipeline = baseline.Unfused(engine, problem)
        self._weights: Tensor | None = None

    @property
    def pipeline(self) -> baseline.Unfused:
        """For measuring its kernels one by one."""
        return self._pipeline

    def forward(self) -> Tensor:
        return self._pipeline.forward(self._given.q, self._given.k, self._given.v)[0]

    def save(self) -> None:
        self._weights = self._pipeline.forward(self._given.q, self._given.k, self._given.v)[1]

    def backward(self) -> tuple[Tensor, ...]:
        assert self._weights is not None
        given = self._given
        return self._pipeline.backward(given.grad_out, given.q, given.k, given.v, self._weights)

    def step(self) -> tuple[Tensor, ...]:
        given = self._given
        out, weights = self._pipeline.forward(given.q, given.k, given.v)
        return (out, *self._pipeline.backward(given.grad_out, given.q, given.k, given.v, weights))


_MADE: Mapping[str, Callable[[Engine, Problem, Inputs], Contestant]] = {
    OURS: Fused,
    "unfused": Unfused,
    "sdpa": Sdpa,
    "sdpa_math": SdpaMath,
    "manual": Manual,
    "stock_compiled": StockCompiled,
    "compiled": Compiled,
    "flex": Flex,
    "mps_flash_attn": MpsFlashAttention,
    "mlx": Mlx,
}


def contestant(name: str, engine: Engine, problem: Problem, given: Inputs) -> Contestant:
    """Raises Unable, with the reason, and ValueError for an unknown name."""
    if name not in _MADE:
        raise ValueError(f"no contestant {name!r}; there are {', '.join(_MADE)}")
    return _MADE[name](engine, problem, given)


@contextmanager
def in_memory(reason: str) -> Iterator[None]:
    """A block whose lack of device memory is a reason to leave a contestant out."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise Unable(f"{reason}: {str(error).splitlines()[0]}") from error

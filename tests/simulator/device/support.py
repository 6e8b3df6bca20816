"""Comparing the device with the CPU, a small model, programs in own processes, a Metal engine that counts."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

REPOSITORY = Path(__file__).parents[3]
VOCABULARY = 50


def assert_same(on_device: Tensor, on_cpu: Tensor, tolerance: float = 1e-4) -> None:
    """The first is on the device, and equals the second in values, dtype, shape and strides."""
    assert on_device.device == torch.device("mps:0")
    assert on_device.stride() == on_cpu.stride()
    torch.testing.assert_close(on_device.detach().cpu(), on_cpu.detach(), atol=tolerance, rtol=tolerance)


class SmallModel(nn.Module):
    """Embedding, attention, convolution: tokens (batch, length) -> logits (batch, length, VOCABULARY)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCABULARY, 16), nn.LayerNorm(16)
        self.qkv, self.convolution = nn.Linear(16, 48), nn.Conv1d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        q, k, v = (t.unflatten(2, (2, 8)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.head(x + F.gelu(self.convolution(x.transpose(1, 2)).transpose(1, 2)))


def tokens(length: int = 7) -> Tensor:
    """(3, length) tokens on the CPU."""
    return torch.randint(0, VOCABULARY, (3, length))


def gradients(forward: Callable[[Tensor], Tensor], model: nn.Module, batch: Tensor) -> list[Tensor]:
    """The logits of one step, and the gradient of every parameter."""
    model.zero_grad()
    logits = forward(batch)
    F.cross_entropy(logits.flatten(0, 1), batch.flatten()).backward()
    return [logits, *(parameter.grad for parameter in model.parameters())]


def run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a new process, without an MPS simulator unless `environment` asks for it."""
    inherited = {name: value for name, value in os.environ.items() if name != "MPS_ATTENTION_SIMULATOR"}
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        env=inherited | {"PYTHONPATH": os.pathsep.join(paths)} | environment,
        capture_output=True,
        text=True,
    )


class CountingEngine:
    """Stands in for the Metal engine: keeps what is compiled and launched; a launch fills its first buffer with 1."""

    def __init__(self) -> None:
        self.compiled: list[tuple[str, dict[str, Any]]] = []
        self.launches: list[tuple[str, list[str], dict[str, Any]]] = []

    def compile_shader(self, source: str, **keywords: Any) -> CountingEngine:
        self.compiled.append((source, keywords))
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("generated_kernel"):
            raise AttributeError(name)

        def kernel(*arguments: Any, **grid: Any) -> None:
            devices = [argument.device.type for argument in arguments if isinstance(argument, Tensor)]
            self.launches.append((name, devices, grid))
            arguments[0].fill_(1)

        return kernel

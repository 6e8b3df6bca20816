"""Peak device memory of one training step of the demo GPT, eager and compiled, at lengths where S x S shows.

A length goes in, bytes come out. Prints nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .device import DemoDevice, peak_memory_of
from .gpt import GPTConfig, Model, next_character_loss, seeded_gpt
from .progress import Progress
from .text import Vocabulary, random_windows
from .training import BACKEND

# Spelling and length of each measurement of the demo: how it grows, and that both spellings need the same.
MEASURED = (("sdpa", 1024), ("sdpa", 2048), ("manual", 2048))


@dataclass(frozen=True)
class MemoryComparison:
    """Peak bytes of one training step (batch 1) above weights, gradients and inputs, at one length."""

    spelling: str
    length: int
    eager_bytes: int
    compiled_bytes: int

    @property
    def ratio(self) -> float:
        """How many times more memory eager needs; infinite where the compiled step allocates nothing."""
        return self.eager_bytes / self.compiled_bytes if self.compiled_bytes else math.inf

    def failures(self) -> list[str]:
        """A sentence when the compiled step needs no less memory than eager."""
        if self.compiled_bytes < self.eager_bytes:
            return []
        return [
            f"memory at length {self.length}, attention by {self.spelling}: the compiled step peaks at "
            f"{self.compiled_bytes} bytes, eager at {self.eager_bytes}; compiled must be less"
        ]


def compare_memory(
    spelling: str, length: int, text: str, device: DemoDevice, progress: Progress, layers: int = 1
) -> MemoryComparison:
    """Measure one training step at `length` characters, first in eager, then compiled."""
    vocabulary = Vocabulary.of(text)
    config = GPTConfig(len(vocabulary), layers=layers, longest=length)
    windows = random_windows(vocabulary.encode(text), batch=1, length=length, seed=0)
    inputs, targets = (window.to(device.device) for window in windows)
    model = seeded_gpt(config, spelling, device.device)

    progress.begin(f"length {length}, {spelling}", 2)
    eager_bytes = peak_of_training_step(model, inputs, targets, device)
    progress.advance("compiling")
    torch._dynamo.reset()  # nothing that an earlier run compiled is reused
    compiled = torch.compile(model, backend=BACKEND, dynamic=False)
    compiled_bytes = peak_of_training_step(compiled, inputs, targets, device)
    result = MemoryComparison(spelling, length, eager_bytes, compiled_bytes)
    progress.advance(f"eager needs {result.ratio:.1f}x")
    return result


def peak_of_training_step(model: Model, inputs: Tensor, targets: Tensor, device: DemoDevice) -> int:
    """Bytes at the peak of a second step: the first one allocates the gradients, and compiles."""

    def step() -> None:
        next_character_loss(model(inputs), targets).backward()

    step()
    return peak_memory_of(step, device)

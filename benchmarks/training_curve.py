"""Loss curves of the demo's GPT, eager and compiled, step by step: does compiled training go where eager goes?

    python -m benchmarks.training_curve [--dtype float32 bfloat16] [--steps 200] [--out curves.jsonl]

Both models start from the same weights and see the same windows of text. bfloat16 is autocast over float32 weights.
Prints a table, appends the losses as records where a file is named, and fails where the curves part.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import inductor_mps_attention as ima
from inductor_mps_attention.demo.device import find_device
from inductor_mps_attention.demo.gpt import SPELLINGS, Model, seeded_gpt
from inductor_mps_attention.demo.progress import Progress
from inductor_mps_attention.demo.text import Vocabulary, load_text
from inductor_mps_attention.demo.training import BACKEND, TrainingSettings, train

EARLY_STEPS = 50
"""So long a float32 curve follows another one; then roundings have grown, as they do in any two runs that differ."""


@dataclass(frozen=True)
class Limits:
    """Largest relative difference of a loss at each of the first steps, and at the last one."""

    early: float
    final: float


LIMITS = {"float32": Limits(1e-4, 1e-2), "bfloat16": Limits(2e-2, 2e-2)}


@dataclass(frozen=True)
class Curves:
    """Losses in nats a character, one a step, of both models; and what the compiled one launched."""

    spelling: str
    dtype: str
    layers: int
    eager: list[float]
    compiled: list[float]
    launches: dict[str, int]

    def difference(self, step: int) -> float:
        """|compiled - eager| / |eager| after `step` updates, -1 being the last."""
        return abs(self.compiled[step] - self.eager[step]) / abs(self.eager[step])

    @property
    def worst_early(self) -> float:
        differences = [self.difference(step) for step in range(min(EARLY_STEPS, len(self.eager)))]
        return math.nan if any(map(math.isnan, differences)) else max(differences)

    def failures(self) -> list[str]:
        """A sentence for each thing that is not as it must be."""
        limits, found, worst = LIMITS[self.dtype], [], self.worst_early
        if not worst <= limits.early:  # written so that a NaN fails
            found.append(f"one of the first {EARLY_STEPS} losses differs by {worst:.1e}, limit {limits.early}")
        if not self.difference(-1) <= limits.final:
            found.append(f"the last loss differs by {self.difference(-1):.1e}, limit {limits.final}")
        wanted = self.layers * len(self.eager)
        if set(self.launches.values()) != {wanted} or len(self.launches) != 4:
            found.append(f"launches {self.launches}, not {wanted} of each of the four kernels")
        return [f"{self.dtype}, attention by {self.spelling}: {sentence}" for sentence in found]


def compare(spelling: str, dtype: str, settings: TrainingSettings, progress: Progress) -> Curves:
    """Trains both from the settings' seed."""
    found = find_device()
    found.prepare()
    device, text = found.device, load_text()
    vocabulary = Vocabulary.of(text)
    tokens = vocabulary.encode(text)
    losses = []
    torch._dynamo.reset()
    for name in ("eager", "compiled"):
        progress.begin(f"{dtype}, {spelling}, {name}", settings.steps)
        model = seeded_gpt(settings.model_config(vocabulary), spelling, device, settings.seed)
        called = model if name == "eager" else torch.compile(model, backend=BACKEND, dynamic=False)
        ima.reset_stats()
        losses.append(train(model, _autocast(called, device, dtype), tokens, device, settings, progress))
    eager, compiled = losses
    return Curves(spelling, dtype, settings.layers, eager, compiled, dict(ima.stats()["launches"]))


def _autocast(model: Model, device: torch.device, dtype: str) -> Model:
    """Logits in float32, as a loss wants them."""
    context = nullcontext() if dtype == "float32" else torch.autocast(device.type, getattr(torch, dtype))

    def call(tokens: Tensor) -> Tensor:
        with context:
            logits = model(tokens)
        return logits.float()

    return call


def main(arguments: Sequence[str] | None = None) -> int:
    """1, with a sentence for each failure, where curves part."""
    from rich.console import Console

    from inductor_mps_attention.demo.presentation import Bars

    chosen = _parse(arguments)
    settings = TrainingSettings(steps=chosen.steps, generated=0)
    console = Console(width=None if sys.stdout.isatty() else 120)
    made: list[Curves] = []
    with Bars(console) as progress:
        for dtype in chosen.dtype:
            for spelling in chosen.spelling:
                made.append(compare(spelling, dtype, settings, progress))
                if chosen.out:
                    with chosen.out.open("a") as file:
                        file.write(json.dumps({"torch": torch.__version__, **asdict(made[-1])}) + "\n")
    console.print(_table(made))
    failures = [failure for curves in made for failure in curves.failures()]
    for failure in failures:
        console.print(f"FAILED: {failure}", style="red", markup=False)
    return 1 if failures else 0


def _table(made: Sequence[Curves]) -> Any:
    from rich.table import Table

    table = Table(title=f"{len(made[0].eager)} steps of the demo's GPT, compiled against eager")
    for heading in ("dtype", "attention by", "first loss", "last, eager", "last, compiled", "differ by"):
        table.add_column(heading, justify="right")
    table.add_column(f"worst of the first {EARLY_STEPS}", justify="right")
    for curves in made:
        losses = (f"{loss:.4f}" for loss in (curves.eager[0], curves.eager[-1], curves.compiled[-1]))
        differences = (f"{difference:.1e}" for difference in (curves.difference(-1), curves.worst_early))
        table.add_row(curves.dtype, curves.spelling, *losses, *differences)
    return table


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_curve", description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", nargs="+", choices=LIMITS, default=list(LIMITS))
    parser.add_argument("--spelling", nargs="+", choices=SPELLINGS, default=list(SPELLINGS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, help="a .jsonl file; losses are appended")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

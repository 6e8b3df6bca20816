"""Train the demo GPT in eager and compiled with `backend="mps_attention"`, from the same seed, and compare.

Text and settings go in, a `TrainingComparison` of plain numbers comes out. Prints nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import inductor_mps_attention as ima

from .gpt import GPT, GPTConfig, Model, next_character_loss, seeded_gpt
from .progress import Progress
from .text import Vocabulary, random_windows

BACKEND = "mps_attention"
BACKWARD_ROLES = ("backward_delta", "backward_dq", "backward_dkv")
LOSS_TOLERANCE = 1e-4
TEMPERATURE = 0.7


@dataclass(frozen=True)
class TrainingSettings:
    """Sizes of one training run: `length` characters a window, `generated` characters (0: none) written after it."""

    layers: int = 3
    heads: int = 4
    width: int = 128
    length: int = 128
    batch: int = 4
    steps: int = 20
    learning_rate: float = 4e-3
    seed: int = 0
    generated: int = 48

    def model_config(self, vocabulary: Vocabulary) -> GPTConfig:
        """The GPT of these settings over the characters of `vocabulary`."""
        return GPTConfig(len(vocabulary), self.layers, self.heads, self.width, longest=self.length)


@dataclass(frozen=True)
class TrainingComparison:
    """What the two runs of one spelling of attention did. Losses are in nats a character, one a step."""

    spelling: str
    layers: int
    steps: int
    report: Any
    launches: dict[str, int]
    eager_losses: list[float]
    compiled_losses: list[float]
    prompt: str
    generated: str

    def relative_differences(self) -> list[float]:
        """|compiled - eager| / |eager| of each step's loss."""
        pairs = zip(self.eager_losses, self.compiled_losses, strict=True)
        return [abs(compiled - eager) / abs(eager) for eager, compiled in pairs]

    def failures(self) -> list[str]:
        """Everything that is not as promised, a sentence each; empty when all is well."""
        found = []
        if self.report.fused != self.layers:
            found.append(f"{self.report.fused} of {self.layers} attentions are fused")
        expected = self.layers * self.steps
        counts = {role: self.launches.get(role, 0) for role in ("forward", *BACKWARD_ROLES)}
        found += [
            f"{role} was launched {count} times, {self.layers} layers x {self.steps} steps need {expected}"
            for role, count in counts.items()
            if count != expected
        ]
        found += [
            f"the loss of step {step} differs by {difference:.1e} from eager, limit {LOSS_TOLERANCE:.0e}"
            for step, difference in enumerate(self.relative_differences(), start=1)
            if not difference <= LOSS_TOLERANCE  # written so that a NaN fails
        ]
        return [f"attention by {self.spelling}: {failure}" for failure in found]


def compare_training(
    spelling: str, text: str, device: torch.device, settings: TrainingSettings, progress: Progress
) -> TrainingComparison:
    """Train twice from the same seed on the same windows; let the compiled model write a few characters.

    `spelling` is how the model writes its attention, "sdpa" or "manual".
    """
    vocabulary = Vocabulary.of(text)
    tokens = vocabulary.encode(text)
    config = settings.model_config(vocabulary)

    progress.begin(f"attention by {spelling}, eager", settings.steps)
    model = seeded_gpt(config, spelling, device, settings.seed)
    eager_losses = train(model, model, tokens, device, settings, progress)

    progress.begin(f"attention by {spelling}, compiled", settings.steps, note="compiling")
    torch._dynamo.reset()  # nothing that an earlier run compiled is reused
    model = seeded_gpt(config, spelling, device, settings.seed)
    first_window, _ = random_windows(tokens, settings.batch, settings.length, seed=0)
    report = ima.explain(model, first_window.to(device))

    compiled = torch.compile(model, backend=BACKEND, dynamic=False)
    ima.reset_stats()
    compiled_losses = train(model, compiled, tokens, device, settings, progress)
    launches = dict(ima.stats()["launches"])

    prompt = opening_words(text, settings.length)
    written = ""
    if settings.generated:
        progress.begin(f"compiled {spelling} model writes", settings.generated, note="compiling")
        written = vocabulary.decode(generate(compiled, vocabulary.encode(prompt), device, settings, progress))
    return TrainingComparison(
        spelling=spelling,
        layers=settings.layers,
        steps=settings.steps,
        report=report,
        launches=launches,
        eager_losses=eager_losses,
        compiled_losses=compiled_losses,
        prompt=prompt,
        generated=written,
    )


def train(
    model: GPT,
    call: Model,
    tokens: Tensor,
    device: torch.device,
    settings: TrainingSettings,
    progress: Progress,
) -> list[float]:
    """The usual training loop; the loss of each step. `call` is `model` or its compiled form."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    losses = []
    for step in range(settings.steps):
        inputs, targets = random_windows(tokens, settings.batch, settings.length, seed=step)
        loss = next_character_loss(call(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        progress.advance(f"loss {losses[-1]:.4f}")
    return losses


def opening_words(text: str, length: int) -> str:
    """The `length` characters of the book that end in the middle of its first sentence."""
    end = text.index("`and what is the use")
    return text[end - length : end]


def generate(
    model: Model, prompt: Tensor, device: torch.device, settings: TrainingSettings, progress: Progress
) -> Tensor:
    """Sample characters that follow the tokens `prompt` `(length,)`; int64 `(settings.generated,)` on the CPU.

    The window slides and keeps its length, so one compilation, without gradients, serves all characters.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    window = prompt.to(device)
    written = []
    with torch.no_grad():
        for _ in range(settings.generated):
            logits = model(window[None])[0, -1].float().cpu()
            token = torch.multinomial(torch.softmax(logits / TEMPERATURE, dim=-1), 1, generator=generator)
            written.append(token)
            window = torch.cat([window[1:], token.to(device)])
            progress.advance()
    return torch.cat(written)

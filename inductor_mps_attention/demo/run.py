"""`python -m inductor_mps_attention demo`: run the parts, show results, say whether all is as promised."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from . import presentation
from .device import DemoDevice, find_device
from .encoder import EncoderComparison, compare_encoder
from .gpt import SPELLINGS
from .memory import MEASURED, MemoryComparison, compare_memory
from .text import TITLE, load_text
from .training import TrainingComparison, TrainingSettings, compare_training

PARTS = ("training", "memory", "encoder")


def main(argv: Sequence[str]) -> int:
    """Run the demo as `argv` says; 0 if every check passed, else 1 and a sentence for each failure."""
    arguments = _parse(argv)
    _silence_matmul_tuning()
    console = presentation.make_console()
    started = time.perf_counter()
    device = find_device()
    console.print(device.sentence)
    with console.status("preparing the device (the simulated one is built at first use)"):
        device.prepare()

    failures: list[str] = []
    if "training" in arguments.parts:
        for training in show_training(console, device, TrainingSettings(steps=arguments.steps)):
            failures += training.failures()
    if "memory" in arguments.parts:
        for memory in show_memory(console, device):
            failures += memory.failures()
    if "encoder" in arguments.parts:
        failures += show_encoder(console, device).failures()

    console.rule()
    for failure in failures:
        console.print(f"FAILED: {failure}", style="bold red", markup=False)
    seconds = time.perf_counter() - started
    verdict = f"{len(failures)} checks failed" if failures else "Every check passed"
    console.print(f"{verdict}; the demo took {seconds:.0f} s{' (simulated)' if device.is_simulated else ''}.")
    return 1 if failures else 0


def show_training(console: Console, device: DemoDevice, settings: TrainingSettings) -> list[TrainingComparison]:
    """Train the GPT in both spellings of attention, eager and compiled, and print what happened."""
    text = load_text()
    console.print()
    console.rule("A character-level GPT learns to write", align="left")
    console.print(f"Text: {TITLE} ({len(text)} characters).")
    console.print(
        f"Model: {settings.layers} layers, width {settings.width}, {settings.heads} heads, float32; "
        f"{settings.steps} steps of {settings.batch} x {settings.length} characters, one seed."
    )
    console.print('Compiled: model = torch.compile(model, backend="mps_attention")', style="bold", markup=False)
    with presentation.Bars(console) as bars:
        results = []
        for spelling in SPELLINGS:
            # Both models are the same function with the same weights, so one of them writes.
            chosen = settings if spelling == "manual" else replace(settings, generated=0)
            results.append(compare_training(spelling, text, device.device, chosen, bars))
    for result in results:
        console.print(f"\nWhat explain(model, tokens) says, attention by {result.spelling}:")
        presentation.show_report(console, result.report)
    console.print("", presentation.launch_table(results), "", presentation.loss_table(results), "")
    console.print(presentation.written_text(results[-1]))
    return results


def show_memory(console: Console, device: DemoDevice) -> list[MemoryComparison]:
    """Measure the peak memory of one training step at lengths where the S x S matrices of eager show."""
    text = load_text()
    console.print()
    console.rule("Memory of one training step", align="left")
    how = "the simulated device's high-water mark" if device.is_simulated else "what the driver handed out"
    console.print(f"One layer, batch 1; {how}, above weights, gradients and inputs.")
    with presentation.Bars(console) as bars:
        results = [compare_memory(spelling, length, text, device, bars) for spelling, length in MEASURED]
    console.print()
    console.print(presentation.memory_table(results))
    return results


def show_encoder(console: Console, device: DemoDevice) -> EncoderComparison:
    """Embed a few sentences with a pretrained encoder, eager and compiled; print match and cosines."""
    console.print()
    console.rule("A pretrained sentence encoder: all-MiniLM-L6-v2, a BERT of 6 layers", align="left")
    with presentation.Bars(console) as bars:
        result = compare_encoder(device.device, bars)
    groups = ", ".join(f"{count} of {tokens} tokens" for tokens, count in sorted(result.group_sizes.items()))
    console.print(
        f"Sentences are batched by equal token length ({groups}): padding would need a mask, "
        "and a mask that depends on the input is declined (MASK)."
    )
    console.print("\nWhat explain(encoder, tokens) says:")
    presentation.show_report(console, result.report)
    console.print()
    console.print(presentation.sentence_table(result))
    return result


def _silence_matmul_tuning() -> None:
    """Inductor warns that `mps` has too few cores to tune matrix products; the demo tunes none."""
    log = logging.getLogger("torch._inductor.utils")
    log.addFilter(lambda record: "max_autotune_gemm" not in record.getMessage())


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m inductor_mps_attention demo", description=__doc__)
    parser.add_argument("--steps", type=_positive, default=20, help="training steps of each run (default 20)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which parts to run (default all)")
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least 1 is needed, got {number}")
    return number

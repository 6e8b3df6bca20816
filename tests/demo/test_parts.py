"""The demo's parts in a tiny size on the simulated device: the whole road from a model to kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from inductor_mps_attention.demo import encoder, memory, training
from inductor_mps_attention.demo.device import find_device
from inductor_mps_attention.demo.progress import Silent
from inductor_mps_attention.demo.text import load_text

TINY = training.TrainingSettings(layers=2, heads=2, width=32, length=32, batch=2, steps=3, generated=4)


class Recorder(Silent):
    """Keeps what a watcher of the demo would see: for each run its name, its steps and how many were done."""

    def __init__(self) -> None:
        self.runs: list[list] = []

    def begin(self, run: str, steps: int, note: str = "") -> None:
        self.runs.append([run, steps, 0])

    def advance(self, note: str = "") -> None:
        self.runs[-1][2] += 1


@pytest.mark.parametrize("spelling", ["sdpa", "manual"])
def test_training_launches_every_kernel_and_follows_eager(spelling):
    progress = Recorder()
    result = training.compare_training(spelling, load_text(), torch.device("mps"), TINY, progress)
    assert result.failures() == []
    assert result.report.fused == 2
    assert result.launches["backward_dkv"] == 6
    assert result.compiled_losses[-1] < result.compiled_losses[0]
    assert len(result.generated) == 4
    assert progress.runs == [
        [f"attention by {spelling}, eager", 3, 3],
        [f"attention by {spelling}, compiled", 3, 3],
        [f"compiled {spelling} model writes", 4, 4],
    ]


def test_training_that_fuses_nothing_is_noticed(monkeypatch):
    monkeypatch.setattr(training, "BACKEND", "eager")
    silent = replace(TINY, generated=0)
    result = training.compare_training("manual", load_text(), torch.device("mps"), silent, Silent())
    assert any("backward_dq was launched 0 times" in failure for failure in result.failures())
    assert result.generated == ""


def test_training_step_needs_less_memory_than_eager_and_no_quadratic_part():
    device = find_device()
    short, long = (memory.compare_memory("manual", size, load_text(), device, Silent()) for size in (256, 512))
    assert long.failures() == []
    assert long.eager_bytes > 2.5 * short.eager_bytes
    assert long.compiled_bytes < 2.2 * short.compiled_bytes


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_pretrained_encoder_is_fused_whole_and_equals_eager(attention):
    result = encoder.compare_encoder(
        torch.device("mps"), Silent(), sentences=encoder.SENTENCES[:2], attention=attention
    )
    assert result.failures() == []
    assert result.report.fused == 6


def test_sentences_keep_their_order_when_batched_by_length():
    _, tokenizer = encoder.load_encoder()
    sentences = ["One two three.", "Cats sleep.", "Four five six.", "Dogs bark."]
    groups = encoder.group_by_length(tokenizer, sentences)
    assert [group.places for group in groups] == [[0, 2], [1, 3]]
    for group in groups:
        assert (group.tokens != tokenizer.pad_token_id).all()

    def first_word(tokens):
        return tokens[:, 1:2]

    rows = encoder.embed(first_word, groups, torch.device("cpu"), Silent())
    words = [tokenizer.convert_ids_to_tokens(int(row)) for row in rows]
    assert words == ["one", "cats", "four", "dogs"]

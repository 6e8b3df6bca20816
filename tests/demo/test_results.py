"""The demo checks itself: each broken promise must turn into a sentence, and so into exit status 1."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from inductor_mps_attention.demo import run
from inductor_mps_attention.demo.encoder import EncoderComparison
from inductor_mps_attention.demo.memory import MemoryComparison
from inductor_mps_attention.demo.training import TrainingComparison


@dataclass(frozen=True)
class FakeReport:
    """Stands for `explain()`'s report, of which the demo reads `fused` and the text."""

    fused: int


TRAINING = TrainingComparison(
    spelling="manual",
    layers=2,
    steps=3,
    report=FakeReport(fused=2),
    launches={"forward": 6, "backward_delta": 6, "backward_dq": 6, "backward_dkv": 6},
    eager_losses=[4.0, 3.0, 2.0],
    compiled_losses=[4.0, 3.0001, 2.0],
    prompt="[once] upon ",
    generated="a time",
)
MEMORY = MemoryComparison("sdpa", 1024, eager_bytes=50 << 20, compiled_bytes=7 << 20)
ENCODER = EncoderComparison(
    report=FakeReport(fused=6),
    sentences=("One.", "Two [sic]."),
    cosines=[1.0, 0.99999],
    nearest=[1, 0],
    nearest_cosines=[0.5, 0.5],
    group_sizes={4: 1, 6: 1},
)


@pytest.mark.parametrize("result", [TRAINING, MEMORY, ENCODER])
def test_a_result_as_promised_has_no_failures(result):
    assert result.failures() == []


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (replace(TRAINING, report=FakeReport(fused=1)), "1 of 2 attentions are fused"),
        (
            replace(TRAINING, launches={**TRAINING.launches, "backward_dq": 5}),
            "backward_dq was launched 5",
        ),
        (replace(TRAINING, launches={}), "forward was launched 0 times"),
        (replace(TRAINING, compiled_losses=[4.0, 3.0004, 2.0]), "the loss of step 2 differs by 1.3e-04"),
        (replace(TRAINING, compiled_losses=[4.0, 3.0, float("nan")]), "the loss of step 3 differs by nan"),
        (replace(MEMORY, compiled_bytes=50 << 20), "compiled must be less"),
        (replace(ENCODER, report=FakeReport(fused=0)), "0 of 6 attentions are fused"),
        (replace(ENCODER, cosines=[0.9998, 1.0]), "cosine 0.999800"),
        (replace(ENCODER, cosines=[1.0, float("nan")]), "cosine nan"),
    ],
)
def test_a_broken_promise_is_a_sentence(result, sentence):
    assert any(sentence in failure for failure in result.failures())


@pytest.fixture
def parts(monkeypatch):
    """The demo with canned results instead of work; the dictionary's values may be replaced."""
    results = {"training": TRAINING, "memory": MEMORY, "encoder": ENCODER}
    monkeypatch.setattr(run.DemoDevice, "prepare", lambda device: None)
    monkeypatch.setattr(run, "compare_training", lambda *arguments: results["training"])
    monkeypatch.setattr(run, "compare_memory", lambda *arguments: results["memory"])
    monkeypatch.setattr(run, "compare_encoder", lambda *arguments: results["encoder"])
    return results


def test_first_line_says_what_is_simulated_and_lines_fit_100_columns(parts, capsys):
    assert run.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mps is ")
    assert "Mac" in " ".join(lines[:2])
    assert max(map(len, lines)) <= 100


def test_text_in_square_brackets_is_printed_and_not_taken_for_markup(parts, capsys):
    run.main([])
    printed = capsys.readouterr().out
    assert "[once] upon a time" in printed
    assert "Two [sic]." in printed


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        ("training", replace(TRAINING, launches={})),
        ("memory", replace(MEMORY, compiled_bytes=51 << 20)),
        ("encoder", replace(ENCODER, report=FakeReport(fused=5))),
    ],
)
def test_exit_status_is_1_when_any_part_fails(parts, capsys, part, broken):
    parts[part] = broken
    assert run.main([]) == 1
    assert "FAILED: " in capsys.readouterr().out

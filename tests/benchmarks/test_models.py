"""A sample of the table of real models: each kind of architecture in one or two of its ways, counts and numbers.

`python -m benchmarks models` runs all of them in all ways.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.models import catalogue, command
from benchmarks.models.judge import judge
from benchmarks.models.table import BUDGET, Row
from benchmarks.models.ways import Outcome, Way, ways

ENTRIES = {entry.name: entry for entry in catalogue.entries([]) if entry.library == "transformers"}
EVAL, TRAIN = Way("eager", cache=False), Way("eager", train=True, cache=False)
CACHED, PADDED = {"cache": True}, {"padded": True, "key_padding": True}

# model, way, attentions fused, attentions in all
SAMPLE = [
    ("GPT-2", replace(EVAL, dynamic=True, **CACHED), 2, 2),
    ("GPT-2", replace(TRAIN, implementation="sdpa", **PADDED), 2, 2),
    ("Llama", replace(TRAIN, dynamic=True, **PADDED), 2, 2),
    ("Llama", replace(EVAL, implementation="sdpa", dynamic=True, **CACHED, **PADDED), 2, 2),
    ("Llama", replace(EVAL, padded=True), 0, 2),
    ("Qwen 3", replace(TRAIN, implementation="sdpa", dynamic=True), 2, 2),
    ("Mistral, window 8", replace(EVAL, dynamic=True, **PADDED), 2, 2),
    ("Gemma 3, window 8 and full", replace(TRAIN, implementation="sdpa"), 2, 2),
    ("Gemma 2", TRAIN, 0, 2),
    ("GPT-BigCode, one head of keys", replace(EVAL, implementation="sdpa", dynamic=True, **CACHED), 2, 2),
    ("BERT", replace(TRAIN, cache=None, **PADDED), 2, 2),
    ("ModernBERT, window 8 and full", replace(EVAL, cache=None, dynamic=True), 2, 2),
    ("BART", replace(TRAIN, implementation="sdpa", **PADDED), 6, 6),
    ("T5", replace(EVAL, implementation="sdpa", dynamic=True), 2, 6),
    ("Whisper", replace(TRAIN, dynamic=True), 6, 6),
    ("DINOv2", replace(TRAIN, implementation="sdpa", cache=None), 2, 2),
    ("SigLIP vision", replace(EVAL, cache=None), 3, 3),
]


@pytest.mark.parametrize(("name", "way", "fused", "sites"), SAMPLE, ids=[f"{n}-{w}" for n, w, *_ in SAMPLE])
def test_a_model_is_fused_as_the_table_says(name: str, way: Way, fused: int, sites: int) -> None:
    entry = ENTRIES[name]
    outcome = judge(entry, way)
    assert (outcome.fused, outcome.sites, outcome.graphs) == (fused, sites, 1), outcome.declined
    assert outcome.error <= BUDGET
    assert not Row(entry, [outcome], []).faults()


def test_the_sample_is_of_ways_that_the_table_has() -> None:
    """A way that the table never runs would be checked here and claimed by nobody."""
    for name, way, *_ in SAMPLE:
        entry = ENTRIES[name]
        assert way in set(ways(replace(entry, every_way=True))), f"{name} {way}"


def test_what_is_not_as_it_should_be_is_a_fault() -> None:
    entry = ENTRIES["T5"]
    fine = Outcome(Way("sdpa", cache=False), 2, 6, (("MASK", "a bias"),) * 4, 1e-7, 1)
    assert Row(entry, [fine], []).faults() == []
    wrong = [
        replace(fine, fused=1, declined=(("MASK", "a bias"),) * 5),
        replace(fine, declined=(("LAYOUT", "a view"),) * 4),
        replace(fine, graphs=2),
        replace(fine, error=float("nan")),
        replace(fine, way=replace(fine.way, padded=True, key_padding=True), fused=0),
    ]
    assert [len(Row(entry, [outcome], []).faults()) for outcome in wrong] == [1] * len(wrong)
    assert Row(entry, [], ["eager eval static: raised"]).faults()


def test_the_command_writes_the_table_and_keeps_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ways", lambda entry: [Way("sdpa")])
    out = tmp_path / "models.jsonl"
    assert command.run(["DINOv2"], out, Console(quiet=True))
    assert command.run(["CLIP vision"], out, Console(quiet=True))
    text = out.with_suffix(".md").read_text()
    assert "| DINOv2 | transformers | sdpa | 2/2 | - | - | - |" in text
    assert "| CLIP vision | transformers | sdpa | 2/2 | - | - | - |" in text

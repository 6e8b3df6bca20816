"""Each suite runs at a tiny size on the simulator: one that cannot run is found here, not on the machine it is for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import __main__ as command_line
from benchmarks import engines, page, plots, records, running, suites, tables
from benchmarks.contestants import OURS
from benchmarks.engines.engine import Engine

SUITES = suites.names()
AGREEMENT = 3e-3  # float16 inputs: half an ulp of the weights in each contestant, summed over a row


@pytest.fixture(scope="module")
def simulator() -> Engine:
    return engines.engine("simulator")


def run_tiny(name: str, simulator: Engine, out: Path) -> list[dict]:
    return running.run(suites.load(name, "tiny"), simulator, out, seconds=0.0, console=Console(quiet=True))


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_runs_and_its_contestants_agree(name: str, simulator: Engine, tmp_path: Path):
    made = run_tiny(name, simulator, tmp_path / "out.jsonl")
    assert made == records.read(tmp_path / "out.jsonl")
    assert len(made) == len(suites.load(name, "tiny").cases)
    for record in made:
        results = record["results"]
        assert "unable" not in results[OURS]
        wanted = {OURS, *suites.load(name, "tiny").baselines} | ({"compile"} if name == "matching_cost" else set())
        assert results.keys() == wanted
        assert all(result.get("difference", 0) < AGREEMENT for result in results.values()), results
        assert record["engine"]["words"].endswith("times without meaning")
        assert "ratios" not in record  # a ratio of the simulator's times would be read as a speed
    tables.of_run(made)


def test_a_record_names_the_kernels_and_what_they_counted(simulator: Engine, tmp_path: Path):
    made = run_tiny("backward", simulator, tmp_path / "out.jsonl")
    ours = made[0]["results"][OURS]
    assert any("backward_dq" in name for name in ours["kernels"])
    assert not any("forward" in name for name in ours["kernels"])  # the forward is prepared, not measured
    assert ours["counters"]["products"] > 0


def test_every_suite_has_its_sizes():
    for name in SUITES:
        whole, tiny = suites.load(name), suites.load(name, "tiny")
        assert 0 < len(tiny.cases) <= len(suites.load(name, "quick").cases) <= len(whole.cases)
        assert whole.about.endswith(".")


def test_a_part_of_a_suite_is_what_was_asked_for():
    suite = suites.load("backward").where(["length=4096", "causal=true"]).with_baselines(["unfused", "flex"])
    assert suite.baselines == ("unfused",)
    assert len(suite.cases) == 3 * 2 * 2
    assert all(case["length"] == 4096 and case["causal"] is True for case in suite.cases)
    with pytest.raises(ValueError, match="no case of backward has length=5"):
        suites.load("backward").where(["length=5"])


def test_an_unknown_suite_or_key_is_refused(tmp_path: Path, monkeypatch):
    with pytest.raises(ValueError, match="no suite 'nothing'; there are backward"):
        suites.load("nothing")
    monkeypatch.setattr(suites, "FOLDER", tmp_path)
    (tmp_path / "odd.yaml").write_text("about: x.\nworkload: forward\naxis: {}\n")
    with pytest.raises(ValueError, match=r"odd.yaml: unknown keys \['axis'\]"):
        suites.load("odd")


def test_the_command_line_runs_compares_and_draws(simulator: Engine, tmp_path: Path, capsys):
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    for out in (before, after):
        status = command_line.main(["run", "memory", "--engine", "simulator", "--size", "tiny", "--out", str(out)])
        assert status == 0
    assert command_line.main(["compare", str(before), str(after)]) == 0
    assert command_line.main(["table", str(after)]) == 0
    assert command_line.main(["plot", str(after), "--folder", str(tmp_path / "pictures")]) == 0
    pictures = list((tmp_path / "pictures").glob("*.png"))
    assert [path.name for path in pictures] == ["memory_simulator_memory.png"]
    assert pictures == plots.planned(records.read(after), tmp_path / "pictures")


def test_an_interrupted_run_goes_on_where_it_ended(tmp_path: Path):
    """Cases that the file has are not measured again, and none is left out."""
    out = tmp_path / "out.jsonl"
    run = ["run", "forward", "bands", "--engine", "simulator", "--size", "tiny", "--out", str(out), "--seconds", "0"]
    assert command_line.main(run) == 0
    whole = out.read_text().splitlines(keepends=True)
    out.write_text("".join(whole[:-1]))
    assert command_line.main([*run, "--resume"]) == 0
    resumed = records.read(out)
    assert [record["case"] for record in resumed] == [record["case"] for record in map(json.loads, whole)]
    assert resumed[:-1] == list(map(json.loads, whole[:-1]))
    assert command_line.main([*run, "--resume"]) == 0
    assert records.read(out) == resumed


def test_an_engine_that_is_not_here_is_one_sentence(tmp_path: Path, capsys):
    assert command_line.main(["run", "forward", "--engine", "metal", "--out", str(tmp_path / "x.jsonl")]) == 1
    assert not (tmp_path / "x.jsonl").exists()


def test_records_of_another_format_are_refused(tmp_path: Path):
    (tmp_path / "old.jsonl").write_text('{"format": 0}\n')
    with pytest.raises(ValueError, match=r"line 1: format 0; this version reads 1"):
        records.read(tmp_path / "old.jsonl")


def test_the_results_page_is_what_its_command_writes():
    kept = page.FOLDER / "README.md"
    assert kept.read_text() == page.text(), "run `python -m benchmarks page`"
    made = [record for file in page.FOLDER.glob("*.jsonl") for record in records.read(file)]
    assert made
    links = re.findall(r"\]\((pictures/[^)]+)\)", kept.read_text())
    assert all((page.FOLDER / link).exists() for link in links)

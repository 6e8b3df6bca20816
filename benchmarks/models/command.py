"""`python -m benchmarks models`: judges models, keeps the outcomes, writes the table, tells faults."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from . import catalogue, libraries, table
from .entry import Entry
from .judge import judge
from .ways import Outcome, Way, ways

RECORDS = Path(__file__).parent.parent / "results" / "models" / "models.jsonl"


def run(only: list[str], out: Path, console: Console) -> bool:
    """Judges the chosen models; true if all are as they should be.

    out: a .jsonl file, one model a line; what is in it already stays, but for the models that are judged now. The
    table of all that is in it goes beside, as .md.
    """
    torch.set_num_threads(1)
    out.parent.mkdir(parents=True, exist_ok=True)
    fine = True
    for entry in catalogue.entries(only):
        begin = time.perf_counter()
        row = _row(entry)
        _keep(out, row)
        faults = row.faults()
        fine &= not faults
        verdict = "as it should be" if not faults else "[red]" + "; ".join(faults).replace("[", "\\[") + "[/red]"
        console.print(f"{entry.library} {entry.name}, {time.perf_counter() - begin:.0f} s: {verdict}")
    write(out)
    return fine


def write(out: Path) -> None:
    """The table of what is kept."""
    kept = _kept(out)
    rows = [
        table.Row(entry, [Outcome.from_json(each) for each in kept[_key(entry)]["outcomes"]], [])
        for entry in catalogue.entries([])
        if _key(entry) in kept
    ]
    versions = libraries.versions({row.entry.library for row in rows})
    out.with_suffix(".md").write_text(table.text(rows, versions))


def _row(entry: Entry) -> table.Row:
    found = [_tried(entry, way) for way in ways(entry)]
    return table.Row(
        entry,
        [each for each in found if isinstance(each, Outcome)],
        [each for each in found if isinstance(each, str)],
    )


def _tried(entry: Entry, way: Way) -> Outcome | str:
    try:
        return judge(entry, way)
    except Exception as error:  # of any kind: it is a finding about this model, and the others are still judged
        return f"{way.implementation} {way}: {type(error).__name__}: {error}"


def _key(entry: Entry) -> str:
    return f"{entry.library} {entry.name}"


def _kept(out: Path) -> dict[str, dict[str, Any]]:
    lines = out.read_text().splitlines() if out.exists() else []
    return {record["model"]: record for record in map(json.loads, lines)}


def _keep(out: Path, row: table.Row) -> None:
    kept = _kept(out)
    kept[_key(row.entry)] = {
        "model": _key(row.entry),
        "outcomes": [outcome.to_json() for outcome in row.outcomes],
        "failures": row.failures,
    }
    out.write_text("".join(json.dumps(record) + "\n" for record in kept.values()))

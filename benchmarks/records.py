"""Records of measurements: one JSON object a line, with all that it takes to judge them later."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from .engines.engine import Engine

FORMAT = 1


def environment(engine: Engine) -> dict[str, Any]:
    """What all records of a run share: engine, versions, commit, time."""
    return {
        "format": FORMAT,
        "engine": {
            "name": engine.name,
            "words": engine.words,
            "times_are_meaningful": engine.times_are_meaningful,
            "facts": engine.facts(),
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "package": _version()},
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def _version() -> str:
    try:
        return importlib.metadata.version("inductor-mps-attention")
    except importlib.metadata.PackageNotFoundError:  # a copy that is not installed, as on a lent machine
        return "not installed"


def commit() -> str:
    """The commit of this tree, marked where files but results differ from it; in a copy what its file COMMIT says."""
    here = Path(__file__).parent
    told = here.parent / "COMMIT"
    if told.exists():
        return told.read_text().strip()
    name = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", str(here.parent), f":(exclude){here / 'results'}")
    return f"{name}-dirty" if name and changed else name or "unknown"


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def append(path: Path, record: dict[str, Any]) -> None:
    """One line more; a run that is killed keeps what it measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All records of a file. ValueError, with the line, for one of another format."""
    records = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        record = json.loads(line)
        if record.get("format") != FORMAT:
            raise ValueError(f"{path}, line {number}: format {record.get('format')}; this version reads {FORMAT}")
        records.append(record)
    return records


def key(record: dict[str, Any]) -> str:
    """What two records must share to be compared: the suite and the case."""
    return json.dumps([record["suite"], record["case"]], sort_keys=True)


def contestants(record: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Those that were measured, ours first."""
    return ((name, result) for name, result in record["results"].items() if "unable" not in result)

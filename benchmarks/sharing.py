"""All suites on one engine, packed into one file that is easy to send."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from rich.console import Console

from . import suites
from .engines.engine import Engine
from .running import run


def pack(engine: Engine, out: Path, size: str, console: Console) -> Path:
    """Runs every suite at a size; the file has a result file for each, with nothing about its owner but the machine."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in suites.names():
            file = Path(folder) / f"{name}.jsonl"
            run(suites.load(name, size), engine, file, seconds=0.5, console=console)
            packed.write(file, file.name)
    return out

"""The tuned file: measurements of any number of machines, as JSON with a checksum, replaced whole.

A file of another format, a damaged one and one of other kernels are refused with one sentence. What is read is checked
down to each number, so that nothing but measurements of this package's own candidates comes out.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import inductor_mps_attention.codegen

from .. import sources
from .machine import Machine
from .results import Results

FORMAT = 1


class TunedFileRefused(ValueError):
    """The file cannot be used; the message says why, in one sentence."""


def kernels() -> str:
    """The version of everything that kernel texts are made from: measurements of other texts say nothing."""
    return sources.digest(Path(inductor_mps_attention.codegen.__file__).parent).hex()


def read(path: Path, machine: Machine) -> Results:
    """What the file has for the machine; empty if it has nothing for it or is not there. Raises TunedFileRefused."""
    if not path.exists():
        return Results()
    for section in _sections(path):
        if section.get("machine") != asdict(machine):
            continue
        if section.get("kernels") != kernels():
            raise TunedFileRefused(f"{path} was measured with other kernels than this version has; tune again")
        try:
            return Results.from_json(section["results"])
        except (KeyError, TypeError, ValueError) as error:
            raise TunedFileRefused(f"{path} holds what `tune` does not write: {error!r}") from error
    return Results()


def write(path: Path, machine: Machine, results: Results) -> None:
    """Replaces what the file has for the machine; other machines' sections stay. A file that is refused is replaced.

    The new file is complete before it takes the old one's place: whoever reads meanwhile, or is killed, has either.
    """
    try:
        others = [section for section in _sections(path) if section.get("machine") != asdict(machine)]
    except (TunedFileRefused, FileNotFoundError):
        others = []
    section = {"machine": asdict(machine), "kernels": kernels(), "results": results.to_json()}
    sections = sorted([*others, section], key=lambda each: json.dumps(each["machine"], sort_keys=True))
    text = json.dumps(_sealed(sections), indent=1, sort_keys=True) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_text(text)
    os.replace(unfinished, path)


def _sections(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise TunedFileRefused(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        version = found.get("format") if isinstance(found, dict) else None
        raise TunedFileRefused(f"{path} has format {version}; this version reads {FORMAT}")
    sections = found.get("sections")
    if not isinstance(sections, list) or found != _sealed(sections):
        raise TunedFileRefused(f"{path} is damaged: its checksum does not fit its content")
    return sections


def _sealed(sections: list[Any]) -> Mapping[str, Any]:
    content = json.dumps(sections, sort_keys=True)
    return {"format": FORMAT, "checksum": hashlib.sha256(content.encode()).hexdigest(), "sections": sections}

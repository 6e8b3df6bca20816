"""A hash of everything that decides what the pass makes of a graph; part of Inductor's cache keys."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import torch

import inductor_mps_attention.codegen

_SUFFIXES = (".py", ".jinja")


def package_fingerprint(extra: tuple[Any, ...]) -> bytes:
    """Changes with any source or template of the package, with torch's version and with `extra` (plain values)."""
    return hashlib.sha256(_sources() + repr((torch.__version__, extra)).encode()).digest()


@functools.cache
def _sources() -> bytes:
    """Read once: what is imported does not change with the files."""
    digest = hashlib.sha256()
    for folder in (Path(__file__).parents[1], Path(inductor_mps_attention.codegen.__file__).parent):
        for file in sorted(folder.rglob("*")):
            if file.suffix in _SUFFIXES and "simulator" not in file.relative_to(folder).parts:
                digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.digest()

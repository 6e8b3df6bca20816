"""A hash of everything that decides what the pass makes of a graph; part of Inductor's cache keys."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

import inductor_mps_attention.codegen

from .. import sources


def package_fingerprint(extra: tuple[Any, ...]) -> bytes:
    """Changes with any source or template of the package, with torch's version and with `extra` (plain values)."""
    package, codegen = Path(__file__).parents[1], Path(inductor_mps_attention.codegen.__file__).parent
    own = sources.digest(package, without="simulator") + sources.digest(codegen)
    return hashlib.sha256(own + repr((torch.__version__, extra)).encode()).digest()

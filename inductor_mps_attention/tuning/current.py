"""The measurements that hold in this process: read once from the tuned file, when something is planned first."""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from inductor_mps_attention.codegen import TunedPlan

from ..config import tuned_file
from . import machine, store
from .candidates import is_candidate
from .results import Results


@dataclass(frozen=True, eq=False)
class Tuned:
    """What planner and preference go by, the same object as long as it holds. `path`: the file; None where none is
    looked for.
    """

    path: Path | None = None
    results: Results = field(default_factory=Results)
    refusal: str | None = None
    """Why there is a file and it is ignored."""

    @functools.cached_property
    def plans(self) -> tuple[TunedPlan, ...]:
        """For the planner."""
        return self.results.tuned_plans()

    @functools.cached_property
    def digest(self) -> str:
        """Part of cache keys: what is compiled under other measurements is not taken over."""
        return hashlib.sha256(json.dumps(self.results.to_json(), sort_keys=True).encode()).hexdigest()


@functools.cache
def current() -> Tuned:
    """Read at the first use; a file that appears later is for later processes. Warns, once, of one that is refused."""
    path = tuned_file()
    if path is None or not path.exists():
        return Tuned(path)
    try:
        results = store.read(path, machine.here())
        strangers = [plan for plan in results.tuned_plans() if not is_candidate(plan)]
        if strangers:
            raise store.TunedFileRefused(f"{path} names {strangers[0].tiling}, which the planner does not offer")
    except store.TunedFileRefused as refusal:
        warnings.warn(f"mps_attention: {refusal}; the file is ignored.", stacklevel=2)
        return Tuned(path, refusal=str(refusal))
    return Tuned(path, results)


def reload() -> None:
    """Forget what was read; the next use reads the file again. What is compiled already stays as it is."""
    current.cache_clear()

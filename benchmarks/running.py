"""Runs a suite on an engine and writes its records, with a bar that says where it is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from . import ceilings, records
from .ceilings import Ceilings
from .engines.engine import Engine
from .progress import cases_with_bar
from .suites import Suite
from .workloads import WORKLOADS, Run


def run(
    suite: Suite, engine: Engine, out: Path, *, seconds: float, console: Console, limit_s: float = 0
) -> list[dict[str, Any]]:
    """Measures every case, appends a record for each to `out`, and gives them.

    `seconds` is what one contestant may take in each of its turns. With a `limit_s` cases that would begin later are
    left out, and the console says how many.
    """
    if not suite.cases:
        console.print(f"{suite.name}: all cases are measured")
        return []
    begin = time.monotonic()
    made: list[dict[str, Any]] = []
    with engine.installed():
        shared = records.environment(engine) | {"suite": suite.name}
        found = _ceilings(engine, suite, out, shared)
        wanted = Run(engine, found, suite.baselines, seconds)
        for number, case in enumerate(cases_with_bar(suite, console)):
            if limit_s and time.monotonic() - begin > limit_s:
                console.print(
                    f"{suite.name}: stopped after {limit_s:.0f} s; {len(suite.cases) - number} cases are left out"
                )
                break
            record = shared | {"case": case} | WORKLOADS[suite.workload](wanted, case)
            records.append(out, record)
            made.append(record)
            if engine.device == "cuda":
                torch.cuda.empty_cache()
    return made


def _ceilings(engine: Engine, suite: Suite, out: Path, shared: dict[str, Any]) -> dict[str, Ceilings]:
    """Measured for each dtype of the suite where times mean something, and recorded as the suite's case "ceilings"."""
    if not engine.times_are_meaningful or "unfused" not in suite.baselines:
        return {}
    found = {}
    for dtype in dict.fromkeys(case["dtype"] for case in suite.cases):
        found[dtype] = ceilings.measure(engine, dtype)
        results = {"ceilings": found[dtype].to_json()}
        records.append(out, shared | {"case": {"ceilings": dtype}, "label": f"ceilings {dtype}", "results": results})
    return found

"""Our kernels under NVIDIA's compute-sanitizer, which finds races, stray accesses and barriers that not all reach.

A sanitizer watches a process, so each tool runs this module anew: `python -m benchmarks.sanitize` launches every role
once for each case of SUITE. Reports name lines of the Metal text.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

from . import engines, records
from .engines.engine import EngineUnavailable
from .suites import Suite

TOOLS = ("memcheck", "racecheck", "synccheck")
_AXES: dict[str, tuple[Any, ...]] = {
    "dtype": ("float16", "bfloat16", "float32"),
    "head_dim": (64, 80, 128),
    "causal": (False, True),
    "lengths": ((7, 7), (33, 33), (129, 129), (3, 300), (515, 33)),
}
"""Queries and keys; the last are of a decode, whose keys are split, and of a backward whose heads are."""
_HEADS = {"batch": 1, "heads": 2, "kv_heads": 1}


def _cases() -> Iterator[dict[str, Any]]:
    for values in itertools.product(*_AXES.values()):
        case: dict[str, Any] = dict(zip(_AXES, values, strict=True)) | _HEADS
        q_len, kv_len = case.pop("lengths")
        yield case | {"q_len": q_len, "kv_len": kv_len}


SUITE = Suite(
    "sanitize",
    "What the sanitizers watch: every role over dtypes, head dims, bands and ragged lengths.",
    "training_step",
    (),
    tuple(_cases()),
)
"""Not measured; `python -m benchmarks compile sanitize` compiles its texts."""
_KERNELS = "kns=msl_entry"


def run(tool: str) -> str:
    """The tool's last line. Raises ValueError with its report where it finds anything."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        raise EngineUnavailable("compute-sanitizer is not installed; it comes with the CUDA toolkit")
    command = [program, "--tool", tool, "--kernel-name", _KERNELS, sys.executable, "-m", __spec__.name]
    # Without torch's cache each tensor is an allocation of its own, so that memcheck sees its end.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    report = done.stdout + done.stderr
    summary = re.findall(r"^=+ ((?:ERROR|RACECHECK) SUMMARY.*)$", report, re.MULTILINE)
    launched = re.search(r"launched (\d+) attentions", report)
    if done.returncode or not summary or launched is None or not _is_clean(summary[-1]):
        raise ValueError(f"{tool} reports:\n{report[-6000:]}")
    return f"{summary[-1]}, over {launched.group(1)} attentions"


def report(tools: Sequence[str]) -> str:
    """The tools' last lines, under one that says what ran where. Raises as `run` does."""
    facts = engines.engine("nvidia").facts()
    head = (
        f"python -m benchmarks sanitize, {facts['name']}, {facts['driver']}, commit {records.commit()}, {date.today()}"
    )
    return "\n".join([head, *(f"{tool}: {run(tool)}" for tool in tools)]) + "\n"


def _is_clean(summary: str) -> bool:
    return bool(re.search(r"SUMMARY: 0 (errors|hazards)", summary))


def main() -> None:
    """Launches everything once."""
    from . import contestants
    from .problem import Problem

    engine = engines.engine("nvidia")
    count = 0
    with engine.installed():
        for case in SUITE.cases:
            problem = Problem.of(case)
            made = contestants.contestant(contestants.OURS, engine, problem, contestants.inputs(engine, problem))
            made.step()
            count += 1
        engine.synchronize()
    print(f"launched {count} attentions")


if __name__ == "__main__":
    main()

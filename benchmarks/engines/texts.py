"""Compiles a suite's texts for the NVIDIA engine without a GPU: a check, and a cache that a lent machine starts with.

Nothing runs: tensors have shapes and no memory.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from inductor_mps_attention.runtime import limits_of, planned_for
from inductor_mps_attention.simulator import nvidia

from .. import ceilings, contestants
from ..contestants import OURS, contestant
from ..measure import Measurement
from ..problem import Problem
from ..progress import cases_with_bar
from ..suites import Suite
from ..torch_contestants import Unable
from .engine import Call, Engine
from .nvidia import OPTIONS

_OWN = (OURS, "unfused")


class TextsEngine(Engine):
    name = "texts"
    words = "Metal text compiled for an NVIDIA GPU; nothing was run"
    device = "meta"
    times_are_meaningful = True  # so that all variants of the baseline are compiled

    def __init__(self) -> None:
        super().__init__()
        self.compiled: set[str] = set()
        self._waiting: dict[str, None] = {}

    def facts(self) -> dict[str, Any]:
        return {"device": "none"}

    def compile_shader(self, text: str) -> Any:
        """Notes the text, to be compiled with others."""
        if text not in self.compiled:
            self._waiting[text] = None
        return _Idle()

    def compile_noted(self, jobs: int, console: Console) -> int:
        """Compiles what was noted, in so many processes; gives how many texts these were. Raises the first error."""
        texts = tuple(self._waiting)
        self._waiting.clear()
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            for _ in track(pool.map(_compile, texts), "compiling", len(texts), console=console, transient=True):
                pass
        self.compiled.update(texts)
        return len(texts)

    def measure(self, call: Call, seconds: float) -> Measurement:
        call()
        return Measurement((1.0,), "not run")

    def synchronize(self) -> None:
        pass

    def peak_bytes(self, call: Call) -> int:
        return 0


class _Idle:
    """A library whose kernels do nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: None


def _compile(text: str) -> None:
    nvidia.compile_check(text, options=OPTIONS)


def compile_suite(engine: TextsEngine, suite: Suite, console: Console, jobs: int) -> int:
    """Compiles what our kernels, the baseline and the ceilings need for a suite; gives how many texts were new."""
    # Tensors have no memory, so the device that the plans are for is told.
    with engine.installed(), planned_for(limits_of(torch.device("cuda"))):
        for dtype in dict.fromkeys(case["dtype"] for case in suite.cases):
            ceilings.measure(engine, dtype)
        for case in cases_with_bar(suite, console):
            problem = Problem.of({name: value for name, value in case.items() if name != "layers"})
            for name in _OWN:
                _note(engine, name, problem, suite.workload)
    return engine.compile_noted(jobs, console)


def _note(engine: TextsEngine, name: str, problem: Problem, workload: str) -> None:
    try:
        made = contestant(name, engine, problem, contestants.inputs(engine, problem))
    except Unable:
        return
    if workload in ("forward", "launch_overhead"):
        made.forward()
    else:
        made.step()

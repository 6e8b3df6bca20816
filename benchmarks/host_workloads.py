"""What the host spends: compiling kernels, and launching them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from inductor_mps_attention import runtime

from . import contestants
from .contestants import OURS, contestant
from .engines.engine import Engine
from .measure import Measurement
from .problem import Problem
from .torch_contestants import Unable

_CALLS, _BATCHES = 200, 5


def compile_time(engine: Engine, problem: Problem) -> dict[str, Any]:
    """Seconds until a first training step has run, less those of the next: planning, rendering, compiling."""
    given = contestants.inputs(engine, problem)
    made = contestant(OURS, engine, problem, given)
    times = []
    for _ in range(3 if engine.times_are_meaningful else 1):
        with (
            tempfile.TemporaryDirectory() as empty,
            mock.patch.dict("os.environ", {"MPS_ATTENTION_SIMULATOR_CACHE": empty} if engine.name == "nvidia" else {}),
        ):
            runtime.clear()
            times.append(_seconds(engine, made.step) - _seconds(engine, made.step))
    with engine.log.record() as log:
        made.step()
    result = Measurement(tuple(times), "first step less the next").to_json() | {"kernels": log.kernels}
    return {"problem": problem.to_json(), "label": problem.label(), "results": {OURS: result}}


def launch_overhead(engine: Engine, problem: Problem, baselines: Sequence[str]) -> dict[str, Any]:
    """Host seconds of one forward call, calls queued one after another."""
    given = contestants.inputs(engine, problem)
    results: dict[str, dict[str, Any]] = {}
    for name in (OURS, *baselines):
        try:
            made = contestant(name, engine, problem, given)
            made.forward()
        except Unable as reason:
            results[name] = {"unable": str(reason)}
            continue
        engine.synchronize()
        calls = _CALLS if engine.times_are_meaningful else 1
        times = tuple(_host_seconds(engine, made.forward, calls) for _ in range(_BATCHES))
        results[name] = Measurement(times, f"host clock, batches of {calls}").to_json()
    return {"problem": problem.to_json(), "label": problem.label(), "results": results}


def _seconds(engine: Engine, call: Callable[[], object]) -> float:
    engine.synchronize()
    begin = time.perf_counter()
    call()
    engine.synchronize()
    return time.perf_counter() - begin


def _host_seconds(engine: Engine, call: Callable[[], object], calls: int) -> float:
    """Without the wait for the device at the end."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    spent = (time.perf_counter() - begin) / calls
    engine.synchronize()
    return spent

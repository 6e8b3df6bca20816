"""What is measured about one case: a workload takes an engine and a case and gives the measured part of a record."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from . import contestants, host_workloads, quality
from .ceilings import Ceilings
from .contestants import OURS, Contestant, Unfused, contestant
from .engines.engine import Engine
from .matching_cost import matching_cost
from .measure import Measurement
from .problem import Problem
from .torch_contestants import Inputs, Unable

# Products of q_len x kv_len x head_dim that each kind of attention needs: the backward makes the scores again.
PRODUCTS = {"forward": 2, "backward": 7, "training_step": 9}
ROUNDS = 2
"""Contestants take turns this often: a drift of the clock meets all of them, and shows in the spread."""


@dataclass(frozen=True)
class Run:
    """What a workload may use: the engine, its ceilings by dtype, the baselines wanted, and seconds a contestant."""

    engine: Engine
    ceilings: Mapping[str, Ceilings]
    baselines: Sequence[str]
    seconds: float


class Workload(Protocol):
    def __call__(self, run: Run, case: Mapping[str, Any]) -> dict[str, Any]: ...


def attention(kind: str) -> Workload:
    """Times of one attention; kind is "forward", "backward" or "training_step"."""
    return lambda run, case: _attention(run, Problem.of(case), kind)


def _attention(run: Run, problem: Problem, kind: str) -> dict[str, Any]:
    given = contestants.inputs(run.engine, problem)
    prepared: dict[str, tuple[Contestant, Callable[[], Any]]] = {}
    results: dict[str, dict[str, Any]] = {}
    expected: Any = None
    for name in (OURS, *run.baselines):
        try:
            made, call = _prepared(run, name, problem, given, kind)
            got = _first(run, call, results.setdefault(name, {}))
        except Unable as reason:
            results[name] = {"unable": str(reason)}
            continue
        prepared[name] = made, call
        if name == OURS:
            expected = got
        else:
            results[name]["difference"] = _difference(got, expected)
        del got
    flops = problem.flops(PRODUCTS[kind])
    for name, measured in _in_turns(run, {name: call for name, (_, call) in prepared.items()}).items():
        results[name] |= measured.to_json() | {"flops_per_s": flops / measured.median}
    record = {"problem": problem.to_json(), "label": problem.label(), "flops": flops, "results": results}
    if run.engine.times_are_meaningful:
        record |= _ratios(run, problem, given, kind, prepared, results)
    return record


def _prepared(run: Run, name: str, problem: Problem, given: Inputs, kind: str) -> tuple[Contestant, Callable[[], Any]]:
    with contestants.in_memory("out of device memory"):
        made = contestant(name, run.engine, problem, given)
        if kind == "backward":
            made.save()
    return made, {"forward": made.forward, "backward": made.backward, "training_step": made.step}[kind]


def _first(run: Run, call: Callable[[], Any], result: dict[str, Any]) -> Any:
    """Runs once, and notes which kernels were launched and what they counted."""
    with contestants.in_memory("out of device memory"), run.engine.log.record() as log:
        got = call()
        run.engine.synchronize()
    got = tuple(part.detach() for part in (got if isinstance(got, tuple) else (got,)))
    result["kernels"] = log.kernels
    if log.counters:
        result["counters"] = log.counters
    return got


def _difference(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The largest of ||got - ours|| / ||ours|| over the results: contestants that differ compute something else."""
    return max(
        float((a.to(b.device).float() - b.float()).norm() / b.float().norm())
        for a, b in zip(got, expected, strict=True)
    )


def _in_turns(run: Run, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Measurement]:
    found: dict[str, Measurement] = {}
    for _ in range(ROUNDS if run.engine.times_are_meaningful else 1):
        for name, call in calls.items():
            measured = run.engine.measure(call, run.seconds)
            found[name] = found[name].joined(measured) if name in found else measured
    return found


def _ratios(
    run: Run,
    problem: Problem,
    given: Inputs,
    kind: str,
    prepared: Mapping[str, tuple[Contestant, Callable[[], Any]]],
    results: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Time of each baseline over ours; over the unfused pipeline only with its quality, and if that passes."""
    fused = results[OURS]["median_s"]
    ratios: dict[str, Any] = {name: {"ratio": results[name]["median_s"] / fused} for name in prepared if name != OURS}
    made = prepared["unfused"][0] if "unfused" in prepared else None
    if not isinstance(made, Unfused):
        return {"ratios": ratios}
    ceilings = run.ceilings[problem.dtype]
    judged = quality.of_forward(run.engine, made.pipeline, problem, given, ceilings, run.seconds / 2)
    refused = judged.refusal(results[OURS]["flops_per_s"])
    if refused is not None:
        ratios["unfused"] = {"refused": refused, "measured": ratios["unfused"]["ratio"]}
    variants = {name: list(vars(variant).values()) for name, variant in made.pipeline.chosen.items()}
    return {"ratios": ratios, "baseline_quality": judged.to_json() | {"variants": variants}}


def memory(run: Run, case: Mapping[str, Any]) -> dict[str, Any]:
    """Peak bytes of a training step beyond its inputs."""
    problem = Problem.of(case)
    given = contestants.inputs(run.engine, problem)
    results = {name: _peak(run, name, problem, given) for name in (OURS, *run.baselines)}
    return {"problem": problem.to_json(), "label": problem.label(), "results": results}


def _peak(run: Run, name: str, problem: Problem, given: Inputs) -> dict[str, Any]:
    try:
        with contestants.in_memory("out of device memory"):
            made = contestant(name, run.engine, problem, given)
            made.step()  # compiles and, where kept, allocates what is not the step's
            _forget_last_backward(run.engine)
            return {"peak_bytes": run.engine.peak_bytes(made.step)}
    except Unable as reason:
        return {"unable": str(reason)}


def _forget_last_backward(engine: Engine) -> None:
    """Autograd's thread holds the tensors of its last task until its next one."""
    torch.ones(1, device=engine.device, requires_grad=True).sum().backward()
    gc.collect()


WORKLOADS: Mapping[str, Workload] = {
    "forward": attention("forward"),
    "backward": attention("backward"),
    "training_step": attention("training_step"),
    "memory": memory,
    "compile_time": lambda run, case: host_workloads.compile_time(run.engine, Problem.of(case)),
    "launch_overhead": lambda run, case: host_workloads.launch_overhead(run.engine, Problem.of(case), run.baselines),
    "matching_cost": lambda run, case: matching_cost(run.engine, case),
}
"""By the names that suites use."""

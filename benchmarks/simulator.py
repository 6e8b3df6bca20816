"""Times of the Metal engine: one attention forward, its cold compile, and the same in check mode.

    python -m benchmarks.simulator [--repeats 5] [--study FOLDER]

Absolute times say more about the machine than about the engine. With the folder of an earlier engine (a module
`mslsim` with `compile_shader(text, check=...)`, its runtime in mslrt.cpp), the two take turns and ratios are printed:
those have a meaning. Each turn is a process of its own, as both export the same symbols. Times are the least of all.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from inductor_mps_attention.codegen import KernelPlan, Problem, Role, launch_grid, pack, plan, render

from inductor_mps_attention.simulator import compile_shader

BATCH, HEADS, LENGTH, HEAD_DIM = 1, 4, 512, 64
STRIDE_AXES = ("batch", "head", "row")
# How much slower than the earlier engine each may be.
FLOORS = {"forward": 1.2, "cold compile": 1.2, "check mode": 1.5}

TURNS = 2

# A Metal text, and whether it is checked -> a library that is indexed by kernel names.
Compile = Callable[[str, bool], Any]


class Attention:
    """The forward kernel on random inputs, float32: (batch, heads, length, head_dim)."""

    def __init__(self) -> None:
        chosen = plan(Problem("float32", HEAD_DIM, HEAD_DIM), Role.FORWARD, logsumexp=True)
        assert isinstance(chosen, KernelPlan), chosen
        self.entry, self.text = chosen.entry, render(chosen).text
        shape = (BATCH, HEADS, LENGTH, HEAD_DIM)
        generator = torch.Generator().manual_seed(0)
        tensors = {name: torch.randn(shape, generator=generator) for name in ("q", "k", "v")}
        self.query, self.key, self.value = tensors.values()
        self.out = tensors["out"] = torch.zeros(shape)
        tensors["logsumexp"] = torch.zeros(shape[:-1])
        sizes = {"batch": BATCH, "heads": HEADS, "kv_heads": HEADS, "q_len": LENGTH, "kv_len": LENGTH}
        values = dict(sizes)
        for buffer in chosen.buffers:
            if buffer.strided:
                strides = tensors[buffer.name].stride()
                values |= {
                    f"{buffer.name}_{axis}_stride": strides[i] for i, axis in enumerate(("batch", "head", "row"))
                }
        scalars = [HEAD_DIM**-0.5 for _ in chosen.scalars]
        buffers = [tensors[buffer.name] for buffer in chosen.buffers]
        self.arguments = [*buffers, list(pack(chosen, values)), *scalars]
        self.threads, self.group_size = launch_grid(chosen, **sizes)

    def run(self, library: Any) -> float:
        """Seconds of one launch."""
        started = time.perf_counter()
        library[self.entry](*self.arguments, threads=self.threads, group_size=self.group_size)
        return time.perf_counter() - started

    def is_right(self) -> bool:
        expected = torch.softmax(self.query @ self.key.mT * HEAD_DIM**-0.5, -1) @ self.value
        return bool((self.out - expected).abs().max() < 1e-4)


def measure(compile_text: Compile, repeats: int) -> dict[str, float]:
    """Least seconds of each case with one engine."""
    attention = Attention()
    library = {check: compile_text(attention.text, check) for check in (False, True)}
    times: dict[str, list[float]] = {case: [] for case in FLOORS}
    for repeat in range(repeats):
        started = time.perf_counter()
        compile_text(f"{attention.text}\n// {time.time_ns()} {repeat}\n", False)
        times["cold compile"].append(time.perf_counter() - started)
    for check, case in ((False, "forward"), (True, "check mode")):
        attention.run(library[check])  # the first launch makes stacks and pages
        for _ in range(repeats):
            attention.out.zero_()
            times[case].append(attention.run(library[check]))
            if not attention.is_right():
                raise SystemExit(f"{case}: the result is wrong")
    return {case: min(seconds) for case, seconds in times.items()}


def simulator(text: str, check: bool) -> Any:
    return compile_shader(text, check="full" if check else "off")


def study(folder: Path) -> Compile:
    """The engine in `folder`, which is a copy of its own with the runtime built in it."""
    sys.path.insert(0, str(folder))
    module = importlib.import_module("mslsim")
    return lambda text, check: module.compile_shader(text, check=check)


def built_copy(folder: Path, scratch: Path) -> Path:
    """A copy of the study with its runtime library, as its own notes say to build it."""
    copy = scratch / "study"
    shutil.copytree(folder, copy)
    flags = ["-O2", "-std=c++17", "-shared", "-fPIC", "-march=native", "-pthread"]
    subprocess.run(["g++", *flags, "mslrt.cpp", "-o", "libmslrt.so", "-ldl"], cwd=copy, check=True)
    return copy


def turn(arguments: list[str], cache: Path) -> dict[str, float]:
    """One process with one engine."""
    command = [sys.executable, "-m", "benchmarks.simulator", "--turn", *arguments]
    environment = os.environ | {"MSLSIM_CACHE": str(cache)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def compare(folder: Path | None, repeats: int) -> dict[str, dict[str, float]]:
    """Least seconds by engine and case, the engines in turns."""
    least: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        engines = {"simulator": [f"--repeats={repeats}"]}
        if folder:
            engines["study"] = [f"--repeats={repeats}", f"--study={built_copy(folder, Path(scratch))}"]
        for _ in range(TURNS):
            for name, arguments in engines.items():
                seconds = turn(arguments, Path(scratch) / "cache")
                known = least.setdefault(name, seconds)
                least[name] = {case: min(value, known[case]) for case, value in seconds.items()}
    return least


def show(least: dict[str, dict[str, float]]) -> bool:
    """Prints a line for each case; whether all ratios are within their floors."""
    print(f"attention forward, batch {BATCH}, heads {HEADS}, length {LENGTH}, head dim {HEAD_DIM}, float32")
    within = True
    for case, floor in FLOORS.items():
        line = f"{case:12}" + "".join(f"  {name} {seconds[case] * 1e3:8.1f} ms" for name, seconds in least.items())
        if "study" in least:
            ratio = least["simulator"][case] / least["study"][case]
            within &= ratio <= floor
            line += f"  ratio {ratio:.2f} (at most {floor})"
        print(line)
    return within


def main() -> int:
    parser = argparse.ArgumentParser(description="Times of the Metal engine")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each case; the least time counts")
    parser.add_argument("--study", type=Path, help="folder of an earlier engine, to compare with")
    parser.add_argument("--turn", action="store_true", help="one engine only, as JSON: the script calls itself")
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(measure(study(options.study) if options.study else simulator, options.repeats)))
        return 0
    return 0 if show(compare(options.study, options.repeats)) else 1


if __name__ == "__main__":
    sys.exit(main())

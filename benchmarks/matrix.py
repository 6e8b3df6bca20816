"""Every way into compiled attention, once: a table of what works under which torch.

    python -m benchmarks.matrix [--python OTHER/bin/python ...]

A cell compiles one causal attention, static or with a dynamic length, through the backend or the default inductor, with
the Python wrapper or to C++ text, for training, no_grad or inference_mode. With the Python wrapper values and gradients
are compared with float64 eager and launches are counted; C++ is read, not run. Each interpreter that is named, and this
one, runs all cells with its own torch. Fails if a cell does.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import inductor_mps_attention as ima

from .cpp_text import cpp_texts

SHAPES = ("static", "dynamic")
ROUTES = ("backend", "registered")
WRAPPERS = ("python", "cpp text")
MODES = ("train", "no_grad", "inference_mode")
ROLES = ("forward", "backward_delta", "backward_dq", "backward_dkv")
BUDGET = {"out": 2e-6, "grad": 1e-5}
"""Relative errors of float32 that kernels are held to everywhere."""


@dataclass(frozen=True)
class Cell:
    """One way, and what is wrong with it: nothing, or one sentence."""

    shapes: str
    route: str
    wrapper: str
    mode: str
    fault: str = ""


def cells() -> list[Cell]:
    return [Cell(*axes) for axes in itertools.product(SHAPES, ROUTES, WRAPPERS, MODES)]


def run(cell: Cell) -> Cell:
    """The cell with its fault filled in. Never raises: a failure is what the table is for."""
    torch._dynamo.reset()
    ima.reset_stats()
    torch.manual_seed(0)
    try:
        with torch._inductor.config.patch(force_disable_caches=True), _route(cell) as compile_function:
            fault = (
                _read_cpp(cell, compile_function) if cell.wrapper == "cpp text" else _compare(cell, compile_function)
            )
    except Exception as error:  # the table names it
        fault = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return Cell(cell.shapes, cell.route, cell.wrapper, cell.mode, fault)


@contextlib.contextmanager
def _route(cell: Cell) -> Any:
    if cell.route == "backend":
        yield lambda function: torch.compile(function, backend="mps_attention", fullgraph=True)
    else:
        with ima.registered():
            yield lambda function: torch.compile(function, fullgraph=True)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _inputs(cell: Cell, length: int) -> list[Tensor]:
    heads = [torch.randn(2, 2, length, 16, device="mps", requires_grad=cell.mode == "train") for _ in "qkv"]
    if cell.shapes == "dynamic":
        for tensor in heads:
            torch._dynamo.mark_dynamic(tensor, 2)
    return heads


def _grad_mode(cell: Cell) -> Any:
    return contextlib.nullcontext() if cell.mode == "train" else getattr(torch, cell.mode)()


def _compare(cell: Cell, compile_function: Callable[..., Any]) -> str:
    compiled = compile_function(_attend)
    lengths = (40, 33, 64) if cell.shapes == "dynamic" else (40,)
    for length in lengths:
        own = _inputs(cell, length)
        exact = [tensor.detach().cpu().double().requires_grad_() for tensor in own]
        expected = _attend(*exact)
        with _grad_mode(cell):
            out = compiled(*own)
        pairs = [("out", out.detach(), expected.detach())]
        if cell.mode == "train":
            out.sin().sum().backward()
            expected.sin().sum().backward()
            pairs += [("grad", got.grad, oracle.grad) for got, oracle in zip(own, exact, strict=True)]
        for name, got, oracle in pairs:
            error = ((got.cpu().double() - oracle).norm() / oracle.norm()).item()
            if not error <= BUDGET[name]:
                return f"{name} at length {length}: relative error {error:.1e}, budget {BUDGET[name]:.0e}"
    wanted = {role: len(lengths) for role in (ROLES if cell.mode == "train" else ROLES[:1])}
    stats = ima.stats()
    if stats["fused"] != 1:
        return f"{stats['fused']} attentions fused in all compilations, not 1"
    return "" if stats["launches"] == wanted else f"launches {stats['launches']}, not {wanted}"


def _read_cpp(cell: Cell, compile_function: Callable[..., Any]) -> str:
    def once() -> None:
        with _grad_mode(cell):
            compile_function(_attend)(*_inputs(cell, 40))

    kernels = [text.count("aoti_torch_mps_run_command_block(get_mps_attention_") for text in cpp_texts(once)]
    wanted = [1, 3] if cell.mode == "train" else [1]
    return "" if kernels == wanted else f"{kernels} direct launches in the C++ texts, not {wanted}"


def run_here() -> dict[str, Any]:
    """All cells under this interpreter's torch."""
    ima.simulator.install()
    return {"torch": torch.__version__, "cells": [asdict(run(cell)) for cell in cells()]}


def run_there(python: str) -> dict[str, Any]:
    """All cells under another interpreter, which can import this package and its benchmarks."""
    done = subprocess.run([python, "-m", "benchmarks.matrix", "--json"], capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        raise SystemExit(f"{python} printed no table:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matrix", description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", default=[], help="another interpreter to run all cells with")
    parser.add_argument("--json", action="store_true", help="print this interpreter's cells as JSON")
    arguments = parser.parse_args()
    here = run_here()
    if arguments.json:
        print(json.dumps(here))
        return 0
    results = [here, *map(run_there, arguments.python)]
    _print(results)
    return 1 if any(cell["fault"] for result in results for cell in result["cells"]) else 0


def _print(results: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("shapes", "route", "wrapper", "mode", *(f"torch {result['torch']}" for result in results))
    for index, cell in enumerate(cells()):
        faults = (result["cells"][index]["fault"] or "right" for result in results)
        table.add_row(cell.shapes, cell.route, cell.wrapper, cell.mode, *faults)
    Console(width=160).print(table)


if __name__ == "__main__":
    sys.exit(main())

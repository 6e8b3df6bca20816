"""What the host spends on one attention, with kernels whose bodies are replaced by nothing, in one run.

    python -m benchmarks.call_overhead

Compared are a bare call of a compiled shader; the call that Inductor's output code makes of the same one; the opaque
operator, which is what a graph calls where nothing can be lowered; and the output code of a whole graph of one
attention with either. Contestants take turns in short batches, and the fastest batch of each counts, as whatever else a
machine does only adds. On the simulated device a launch is Python and ctypes, on a Mac it is C++ and the command queue:
the differences are the project's own, the ratios are those of the device. Fails where a limit is passed.
"""

from __future__ import annotations

import ast
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from inductor_mps_attention import lowering, runtime, simulator
from inductor_mps_attention.operators import flash_backward, flash_forward

BARE, LOWERED, OPAQUE = "bare shader", "lowered call", "opaque operator"
GRAPH_LOWERED, GRAPH_OPAQUE = "graph with a lowered call", "graph with an opaque one"
MOST_OVER_BARE = 1.3
MOST_OF_OPAQUE = 0.5
_BATCH, _ROUNDS = 50, 60


@dataclass(frozen=True)
class Overheads:
    """Seconds of single calls, by contestant."""

    seconds: Mapping[str, float]

    def failures(self) -> list[str]:
        """A sentence for each limit that is passed."""
        bare, lowered, opaque = (self.seconds[name] for name in (BARE, LOWERED, OPAQUE))
        found = []
        if not lowered <= MOST_OVER_BARE * bare:
            found.append(f"a lowered call takes {lowered / bare:.2f} times a bare one; {MOST_OVER_BARE} is allowed")
        if not lowered < MOST_OF_OPAQUE * opaque:
            found.append(f"a lowered call takes {lowered / opaque:.2f} of an opaque one; {MOST_OF_OPAQUE} is allowed")
        return found


def measure(rounds: int = _ROUNDS) -> Overheads:
    """All contestants on one attention of 32 queries and keys."""
    q, k, v = (torch.randn(1, 1, 32, 64, device="mps") for _ in "qkv")
    with _empty_kernels(), torch.no_grad():
        code = _output_code(q, k, v)
        graph, (kernel, bare), grid = _loaded(code), _kernels(code), _grid(code)
        with _nothing_lowered():
            opaque = _loaded(_output_code(q, k, v))
        out = torch.empty_like(q)
        calls: dict[str, Callable[[], Any]] = {
            BARE: lambda: bare(q, k, v, out, **grid),
            LOWERED: lambda: kernel(q, k, v, out, **grid),
            OPAQUE: lambda: flash_forward(q, k, v, None, 0.125, None, None),
            GRAPH_LOWERED: lambda: graph([q, k, v]),
            GRAPH_OPAQUE: lambda: opaque([q, k, v]),
        }
        return Overheads(_fastest(calls, rounds))


def _fastest(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(_BATCH):
                call()
            times[name].append((time.perf_counter() - begin) / _BATCH)
    return {name: min(found) for name, found in times.items()}


@contextmanager
def _empty_kernels() -> Iterator[None]:
    """A block in which shaders are compiled without their bodies."""
    compile_shader = torch.mps.compile_shader
    runtime.clear()
    try:
        with mock.patch.object(torch.mps, "compile_shader", lambda text: compile_shader(without_bodies(text))):
            yield
    finally:
        runtime.clear()


def without_bodies(text: str) -> str:
    """The Metal text with every kernel's body empty. Bodies end at the first brace that begins a line."""
    emptied, count = re.subn(r"(kernel void \w+\([^{]*\{)\n.*?\n\}", r"\1}", text, flags=re.DOTALL)
    assert count, "no kernel in the text"
    return emptied


@contextmanager
def _nothing_lowered() -> Iterator[None]:
    """A block in which this torch seems to lack what the lowerings need."""
    from torch._inductor import lowering as inductor_lowering

    with (
        mock.patch.dict(inductor_lowering.lowerings),
        mock.patch.object(lowering, "enable", return_value="left out for a comparison"),
    ):
        for operator in (flash_forward, flash_backward):
            inductor_lowering.lowerings.pop(operator, None)
        yield


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def _output_code(*tensors: Tensor) -> str:
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        _, (code,) = run_and_get_code(torch.compile(_attend, backend="mps_attention"), *tensors)
    return str(code)


def _loaded(code: str) -> Callable[[list[Tensor]], Any]:
    """What Inductor calls for the graph."""
    module: dict[str, Any] = {"__name__": "output_code"}
    exec(compile(code, "output_code", "exec"), module)
    return module["call"]  # type: ignore[no-any-return]


def _kernels(code: str) -> tuple[Any, Any]:
    """The attention kernel of the output code as that loads it, and bare."""
    (call,) = _calls(code, "load_kernel")
    role, entry, text = map(ast.literal_eval, call.args)
    return runtime.load_kernel(role, entry, text), getattr(torch.mps.compile_shader(text), entry)


def _grid(code: str) -> dict[str, list[int]]:
    (call,) = _calls(code, "flash_forward_")
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}


def _calls(code: str, prefix: str) -> list[ast.Call]:
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return [node for node in nodes if isinstance(node.func, ast.Name) and node.func.id.startswith(prefix)]


def main() -> int:
    """1, with a sentence for each, where limits are passed."""
    from rich.console import Console
    from rich.table import Table

    if not torch.backends.mps.is_available():
        simulator.install()
    measured = measure()
    table = Table("call", "microseconds", "over a bare shader", title="host time of one attention, empty kernels")
    for name, seconds in measured.seconds.items():
        table.add_row(name, f"{seconds * 1e6:.2f}", f"{seconds / measured.seconds[BARE]:.2f}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for failure in measured.failures():
        console.print(f"FAILED: {failure}", style="red")
    return 1 if measured.failures() else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m inductor_mps_attention tune`: shapes from the command line or a program, a bar, and the outcome."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..config import tuned_file
from . import current, machine, store, tuner
from .machine import COUNTED, Machine
from .results import MANUAL, SDPA, Results
from .shape import Shape

_INTERRUPTED = 130


def add_to(commands: Any) -> None:
    """Adds the command to the subparsers."""
    tune = commands.add_parser("tune", help="measure plans and stock attention on this machine, and keep the winners")
    tune.add_argument("shapes", nargs="*", metavar="SHAPE", help="as 'f16 B1 H8/2 S1024 D64 causal', or window=256")
    tune.add_argument("--program", metavar="MODULE:FUNCTION", help="tune for the attentions of it, as explain takes it")
    tune.add_argument("--inference", action="store_true", help="the forward alone")
    tune.add_argument("--tilings", type=int, default=6, metavar="N", help="tilings to try for each kernel (6)")
    tune.add_argument("--file", type=Path, default=None, help="instead of MPS_ATTENTION_TUNED or the user's cache")
    tune.add_argument("--again", action="store_true", help="forget what was measured on this machine before")
    tune.add_argument("--dry-run", action="store_true", help="print what would be measured")
    tune.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 2 for what was asked wrongly, 130 when interrupted."""
    try:
        path = _path(arguments.file)
        work = tuner.Work(_shapes(arguments), not arguments.inference, arguments.tilings)
        _check(work)
    except ValueError as error:
        print(f"tune: {error}", file=sys.stderr)
        return 2
    here = machine.here()
    print(f"{here.chip}, {here.system}, torch {here.torch}: {here.unit}")
    if here.unit == COUNTED:
        print("This is the simulator: it has no times. The file is for it alone, and says nothing of an Apple GPU.")
    known = Results() if arguments.again else _known(path, here)
    left = tuner.missing(work, known)
    print(f"{len(tuner.measurements(work))} measurements, {len(left)} of them new; {path}")
    if arguments.dry_run:
        for each in left:
            print(f"  {each.label}")
        return 0
    try:
        results = _measure(work, known, path, here, len(left))
    except KeyboardInterrupt:
        print("Stopped. What was measured is kept: the same command goes on from here.", file=sys.stderr)
        return _INTERRUPTED
    current.reload()
    _print_outcome(work, results)
    return 0


def _shapes(arguments: argparse.Namespace) -> tuple[Shape, ...]:
    shapes = [Shape.parse(text) for text in arguments.shapes]
    if arguments.program:
        from ..program import load
        from .sites import shapes_of

        model, args, kwargs = load(arguments.program)
        shapes += shapes_of(model, *args, **kwargs)
    return tuple(dict.fromkeys(shapes))


def _path(named: Path | None) -> Path:
    path = named or tuned_file()
    if path is None:
        raise ValueError("MPS_ATTENTION_TUNED is empty, so there is no file to write; name one with --file")
    return path


def _check(work: tuner.Work) -> None:
    if not work.shapes:
        raise ValueError("no attention to tune for: give a SHAPE, or a --program with attentions that are fused")
    if work.tilings < 1:
        raise ValueError(f"--tilings must be 1 or more, got {work.tilings}")
    for shape in tuner.unreachable(work.shapes):
        raise ValueError(f"no kernel computes {shape.label}")


def _known(path: Path, here: Machine) -> Results:
    try:
        return store.read(path, here)
    except store.TunedFileRefused as refusal:
        print(f"{refusal}; it is ignored and will be replaced.")
        return Results()


def _measure(work: tuner.Work, known: Results, path: Path, here: Machine, count: int) -> Results:
    results = known
    with _bar(count) as advance:
        for each, results in tuner.tune(work, known, here):
            store.write(path, here, results)
            advance(each)
    return results


@contextlib.contextmanager
def _bar(count: int) -> Iterator[Any]:
    """A function that is told each measurement: rich's bar on a terminal, a line each where rich is not installed."""
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda each: print(each.label, flush=True)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("", total=count)
        yield lambda each: progress.update(task, advance=1, description=each.label)


def _print_outcome(work: tuner.Work, results: Results) -> None:
    measured = {(shape.family, role) for shape, role, _ in results.plans}
    for family in work.families:
        for role in work.roles:
            if (family, role) not in measured:
                continue
            chosen, table = results.chosen.get((family, role)), work.tilings_of(family, role)[0]
            label = f"{family.dtype} {family.qk_head_dim}x{family.v_head_dim} {role.value}"
            verdict = "none was right" if chosen is None else chosen.short
            print(f"  {label}: {verdict}{' (as planned)' if chosen == table else f', instead of {table.short}'}")
    _print_verdicts(work.shapes, work.directions, results)


def _print_verdicts(shapes: Sequence[Shape], directions: Sequence[str], results: Results) -> None:
    for shape in shapes:
        for direction in directions:
            for stock in (SDPA, MANUAL):
                slower = results.slower_than_stock(shape, direction, stock)
                print(f"  {shape.label}, {direction} against {stock}: {slower or 'ours is kept'}")

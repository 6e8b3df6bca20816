"""Measures the kernels, prints tables, draws pictures. README.md beside this says what each figure means."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from . import engines, plots, records, sanitize, suites, tables
from . import page as pages
from .engines.engine import EngineUnavailable

console = Console(width=None if sys.stdout.isatty() else 200)


_PREDICTED = (
    ("dtype", str, "float16"),
    ("batch", int, 1),
    ("heads", int, 16),
    ("head_dim", int, 64),
    ("length", int, 4096),
)


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 with one sentence for what cannot be done here."""
    chosen = _parser().parse_args(arguments)
    try:
        chosen.command(chosen)
    except (EngineUnavailable, ValueError, OSError) as error:
        console.print(f"[red]{error}[/red]")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="measure suites and append records")
    run.add_argument("suites", nargs="+", metavar="SUITE", help=f"of {', '.join(suites.names())}")
    run.add_argument("--engine", choices=engines.NAMES, required=True)
    run.add_argument("--out", type=Path, required=True, help="a .jsonl file; records are appended")
    run.add_argument("--size", choices=suites.SIZES, default="full")
    run.add_argument("--seconds", type=float, default=0.2, help="for each contestant and turn")
    run.add_argument("--limit", type=float, default=0, metavar="S", help="begin no case after so many seconds a suite")
    run.add_argument("--baselines", nargs="*", metavar="NAME", help="of the suite's baselines only these")
    run.add_argument("--where", nargs="+", default=[], metavar="NAME=VALUE", help="only cases that have these values")
    run.add_argument("--resume", action="store_true", help="leave out the cases that the file has")
    run.set_defaults(command=_run)
    texts = commands.add_parser("compile", help="compile a suite's texts for NVIDIA, without a GPU")
    texts.add_argument("suites", nargs="+", metavar="SUITE")
    texts.add_argument("--size", choices=suites.SIZES, default="full")
    texts.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    texts.set_defaults(command=_compile)
    sanitizers = commands.add_parser("sanitize", help="run the kernels under NVIDIA's compute-sanitizer")
    sanitizers.add_argument("--tools", nargs="+", default=list(sanitize.TOOLS), choices=sanitize.TOOLS)
    sanitizers.add_argument("--out", type=Path, help="a .txt file that keeps what they say")
    sanitizers.set_defaults(command=_sanitize)
    plans = commands.add_parser("plans", help="time tilings against each other on the NVIDIA stand-in")
    plans.add_argument("--out", type=Path, required=True, help="a .jsonl file; it is overwritten")
    plans.add_argument("--seconds", type=float, default=0.02, help="for each tiling")
    plans.set_defaults(command=_plans)
    table = commands.add_parser("table", help="print the tables of a result file")
    table.add_argument("file", type=Path)
    table.set_defaults(command=_table)
    compare = commands.add_parser("compare", help="how much faster the second file's run is")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.set_defaults(command=_compare)
    plot = commands.add_parser("plot", help="draw the pictures of result files")
    plot.add_argument("files", nargs="+", type=Path)
    plot.add_argument("--folder", type=Path, required=True)
    plot.set_defaults(command=_plot)
    predict = commands.add_parser("predict", help="what a model expects of our kernels on Apple chips")
    predict.add_argument("--check", action="store_true", help="print how well the model gives published rows back")
    predict.add_argument("--chip", nargs="+", metavar="CHIP", help='as "M3 Max"; all if left out')
    for name, kind, value in _PREDICTED:
        predict.add_argument(f"--{name.replace('_', '-')}", type=kind, default=value)
    predict.add_argument("--causal", action="store_true")
    predict.set_defaults(command=_predict)
    page = commands.add_parser("page", help="write the results page and its pictures")
    page.add_argument("--folder", type=Path, default=pages.FOLDER)
    page.set_defaults(command=lambda chosen: console.print(str(pages.write(chosen.folder))))
    mac = commands.add_parser("mac", help="measure this Mac and pack the numbers into one file to send")
    mac.add_argument("--out", type=Path, required=True, help="a .zip file")
    mac.add_argument("--size", choices=suites.SIZES, default="quick")
    mac.set_defaults(command=_mac)
    models = commands.add_parser("models", help="which attentions of real architectures are fused, and why others not")
    models.add_argument("--only", nargs="+", metavar="NAME", default=[], help="parts of names")
    models.add_argument(
        "--out", type=Path, help="a .jsonl file, default results/models/models.jsonl; the table goes beside it"
    )
    models.set_defaults(command=_models)
    listed = commands.add_parser("suites", help="list the suites")
    listed.set_defaults(command=_suites)
    return parser


def _run(chosen: argparse.Namespace) -> None:
    from .running import run

    loaded = [suites.load(name, chosen.size) for name in chosen.suites]
    if chosen.baselines is not None:
        loaded = [suite.with_baselines(chosen.baselines) for suite in loaded]
    loaded = [suite.where(chosen.where) for suite in loaded]
    if chosen.resume and chosen.out.exists():
        loaded = [suite.without(records.read(chosen.out)) for suite in loaded]
    engine = engines.engine(chosen.engine)
    for suite in loaded:
        made = run(suite, engine, chosen.out, seconds=chosen.seconds, console=console, limit_s=chosen.limit)
        if made:
            console.print(tables.of_run(made))


def _compile(chosen: argparse.Namespace) -> None:
    from .engines.texts import TextsEngine, compile_suite

    engine = TextsEngine()
    for name in chosen.suites:
        suite = sanitize.SUITE if name == sanitize.SUITE.name else suites.load(name, chosen.size)
        count = compile_suite(engine, suite, console, chosen.jobs)
        console.print(f"{name}: {count} texts are compiled")


def _sanitize(chosen: argparse.Namespace) -> None:
    report = sanitize.report(chosen.tools)
    console.print(report)
    if chosen.out is not None:
        chosen.out.write_text(report)


def _plans(chosen: argparse.Namespace) -> None:
    from . import plans

    shared, made = plans.measure(engines.engine("nvidia"), chosen.out, chosen.seconds)
    console.print(tables.of_plans(shared, made))


def _table(chosen: argparse.Namespace) -> None:
    made = records.read(chosen.file)
    for suite in dict.fromkeys(record["suite"] for record in made):
        own = [record for record in made if record["suite"] == suite]
        ceilings = tables.of_ceilings(own)
        if ceilings is not None:
            console.print(ceilings)
        console.print(tables.of_run(own))


def _compare(chosen: argparse.Namespace) -> None:
    console.print(tables.of_comparison(records.read(chosen.before), records.read(chosen.after)))


def _plot(chosen: argparse.Namespace) -> None:
    for path in plots.draw([record for file in chosen.files for record in records.read(file)], chosen.folder):
        console.print(str(path))


def _mac(chosen: argparse.Namespace) -> None:
    from .sharing import pack

    console.print(f"{pack(engines.engine('metal'), chosen.out, chosen.size, console)}: please send this file")


def _predict(chosen: argparse.Namespace) -> None:
    from inductor_mps_attention.codegen import cost

    from .prediction import tables as predictions
    from .problem import Problem

    if chosen.check:
        console.print(predictions.check())
        return
    unknown = [name for name in chosen.chip or () if name not in cost.CHIPS]
    if unknown:
        raise ValueError(f"no chip {unknown[0]!r}; there are {', '.join(cost.CHIPS)}")
    values = {name: getattr(chosen, name) for name, _, _ in _PREDICTED} | {"causal": chosen.causal}
    console.print(predictions.predict(Problem.of(values), chosen.chip or list(cost.CHIPS)))


def _models(chosen: argparse.Namespace) -> None:
    from .models import command

    if not command.run(chosen.only, chosen.out or command.RECORDS, console):
        raise ValueError("not all attentions are as they should be")


def _suites(chosen: argparse.Namespace) -> None:
    for name in suites.names():
        suite = suites.load(name)
        console.print(f"[bold]{name}[/bold]: {suite.about} {len(suite.cases)} cases.")


if __name__ == "__main__":
    sys.exit(main())

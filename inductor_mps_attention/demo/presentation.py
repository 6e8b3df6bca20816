"""The demo's results as tables and progress bars for 100 columns. Computes nothing that is checked."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from .encoder import EncoderComparison
from .memory import MemoryComparison
from .training import BACKWARD_ROLES, TrainingComparison

WIDTH = 100


def make_console() -> Console:
    """A console of at most 100 columns, and of 100 where there is no terminal."""
    console = Console(highlight=False)
    return Console(highlight=False, width=min(console.width, WIDTH) if console.is_terminal else WIDTH)


class Bars:
    """A `demo.progress.Progress` of one bar for each run, with its last note beside it. A context manager."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<30}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._current = TaskID(0)

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def begin(self, run: str, steps: int, note: str = "") -> None:
        """Show the next bar."""
        self._current = self._bars.add_task(run, total=steps, note=note)

    def advance(self, note: str = "") -> None:
        """One step of the current run is done."""
        self._bars.update(self._current, advance=1, note=note)


def show_report(console: Console, report: object) -> None:
    """The match table as `explain()` prints it."""
    console.print(str(report), markup=False, soft_wrap=True)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)


def launch_table(results: Sequence[TrainingComparison]) -> Table:
    """Launches of each kernel role during compiled training."""
    table = _table("Kernel launches of compiled training")
    table.add_column("kernel")
    for result in results:
        table.add_column(result.spelling, justify="right")
    table.add_column("layers x steps", justify="right")
    for role in ("forward", *BACKWARD_ROLES):
        counts = [str(result.launches.get(role, 0)) for result in results]
        table.add_row(role, *counts, str(results[0].layers * results[0].steps))
    return table


def loss_table(results: Sequence[TrainingComparison]) -> Table:
    """Losses of eager and compiled side by side at some steps, and the largest difference of all steps."""
    table = _table("Loss in nats a character, and its difference relative to eager")
    table.add_column("step", justify="right")
    for result in results:
        for heading in (f"{result.spelling}: eager", "compiled", "difference"):
            table.add_column(heading, justify="right")
    steps = results[0].steps
    for step in sorted({1, *range(5, steps, 5), steps}):
        cells = [str(step)]
        for result in results:
            cells += [f"{result.eager_losses[step - 1]:.6f}", f"{result.compiled_losses[step - 1]:.6f}"]
            cells.append(f"{result.relative_differences()[step - 1]:.1e}")
        table.add_row(*cells)
    table.add_section()
    worst = ["all"]
    for result in results:
        worst += ["", "", f"<= {max(result.relative_differences()):.1e}"]
    table.add_row(*worst)
    return table


def written_text(result: TrainingComparison) -> Panel:
    """The end of the prompt, dim, and what the compiled model wrote after it."""
    text = f"[dim]{escape(result.prompt[-64:])}[/dim][bold]{escape(result.generated)}[/bold]"
    title = f"attention by {result.spelling}, compiled, after {result.steps} steps"
    return Panel(text, title=title, title_align="left")


def memory_table(results: Sequence[MemoryComparison]) -> Table:
    """Peak memory of one training step, eager against compiled, in MiB."""
    table = _table("Peak memory of one training step of one layer, MiB")
    table.add_column("length", justify="right")
    table.add_column("attention")
    for heading in ("eager", "compiled", "eager / compiled"):
        table.add_column(heading, justify="right")
    for result in results:
        peaks = (f"{peak / 2**20:.1f}" for peak in (result.eager_bytes, result.compiled_bytes))
        table.add_row(str(result.length), result.spelling, *peaks, f"{result.ratio:.1f}")
    return table


def sentence_table(result: EncoderComparison) -> Table:
    """Each sentence, its cosine between eager and compiled, and its nearest other sentence."""
    table = _table("Cosine of each sentence's compiled vector with eager's, and the nearest other sentence")
    table.add_column("#", justify="right")
    table.add_column("sentence")
    table.add_column("cosine", justify="right")
    table.add_column("nearest", justify="right")
    for place, sentence in enumerate(result.sentences):
        nearest = f"#{result.nearest[place] + 1} {result.nearest_cosines[place]:.2f}"
        table.add_row(str(place + 1), escape(sentence), f"{result.cosines[place]:.7f}", nearest)
    return table

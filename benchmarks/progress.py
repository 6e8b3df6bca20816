"""The bar of a running suite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .suites import Suite


def cases_with_bar(suite: Suite, console: Console) -> Iterator[dict[str, Any]]:
    """The cases of a suite, with a bar that says where it is; it vanishes at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(suite.name, total=len(suite.cases))
        for case in suite.cases:
            yield case
            bar.advance(task)

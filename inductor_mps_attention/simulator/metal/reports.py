"""What the runtime found in a launch -> Report objects with lines of the user's Metal text."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ..errors import Report, SimulatorError
from .launch import REPORT_KINDS, SEVERITY_ERROR, Launch, LaunchReport
from .preprocess import FILE_NAME

# Found, but nothing that makes a result depend on the schedule: kept as notes.
NOTES = {"same_value_write"}


def read_reports(launch: Launch, library: Path, module_low: int) -> tuple[list[Report], list[Report]]:
    """The faults and the notes of a launch."""
    raw = [launch.reports[index] for index in range(launch.reports_stored)]
    offsets = {address - module_low - 1 for report in raw for address in (report.pc, report.other_pc) if address}
    lines = _lines(library, frozenset(offsets)) if offsets else {}
    faults: list[Report] = []
    notes: list[Report] = []
    for report in raw:
        readable = _readable(report, lines, module_low)
        (notes if readable.kind in NOTES else faults).append(readable)
    return faults, notes


def has_errors(launch: Launch) -> bool:
    return bool(launch.error_count) or any(
        launch.reports[index].severity == SEVERITY_ERROR for index in range(launch.reports_stored)
    )


def _readable(report: LaunchReport, lines: dict[int, int], module_low: int) -> Report:
    line = report.line or lines.get(report.pc - module_low - 1, 0)
    other = report.other_line or lines.get(report.other_pc - module_low - 1, 0)
    message = report.message.decode("utf-8", "replace")
    if other:
        message += f"; the other access is at line {other}"
    if report.repeats:
        message += f" ({report.repeats} more like this)"
    return Report(REPORT_KINDS.get(report.kind, "unknown"), max(line, 0), message)


@functools.lru_cache(maxsize=256)
def _lines(library: Path, offsets: frozenset[int]) -> dict[int, int]:
    """For addresses in a module the line of the Metal text: of the call, where the access is inside an
    inlined library function.
    """
    command = ["addr2line", "-a", "-i", "-e", str(library), *(hex(offset) for offset in sorted(offsets))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SimulatorError(f"addr2line, which finds the lines of reports, does not run: {error}") from error
    return dict(_first_own_lines(done.stdout.splitlines()))


def _first_own_lines(output: Iterable[str]) -> Iterable[tuple[int, int]]:
    address = None
    for text in output:
        if text.startswith("0x"):
            address = int(text, 16)
            continue
        found = re.search(rf"{re.escape(FILE_NAME)}:(\d+)", text)
        if found and address is not None:
            yield address, int(found.group(1))
            address = None

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


def read_reports(launch: Launch, library: Path, module_low: int, kernel: str) -> tuple[list[Report], list[Report]]:
    """The faults and the notes of a launch. A note is what Metal allows, and what a reader may want to know."""
    raw = [launch.reports[index] for index in range(launch.reports_stored)]
    offsets = {address - module_low - 1 for report in raw for address in (report.pc, report.other_pc) if address}
    lines = _lines(library, frozenset(offsets)) if offsets else {}
    faults: list[Report] = []
    notes: list[Report] = []
    for report in raw:
        readable = _readable(report, lines, module_low, kernel)
        (faults if report.severity == SEVERITY_ERROR else notes).append(readable)
    return faults, notes


def _readable(report: LaunchReport, lines: dict[int, int], module_low: int, kernel: str) -> Report:
    line = report.line or lines.get(report.pc - module_low - 1, 0)
    other = report.other_line or lines.get(report.other_pc - module_low - 1, 0)
    kind = REPORT_KINDS.get(report.kind, "unknown")
    message = f"kernel {kernel}: " + report.message.decode("utf-8", "replace")
    if other:
        message += f"; the other access is at line {other}"
    if report.repeats:
        message += f" ({report.repeats} more like this)"
    array = report.name.decode("utf-8", "replace")
    return Report(
        kind=kind,
        line=max(line, 0),
        message=message,
        kernel=kernel,
        threads=_parties(report),
        other_line=max(other, 0),
        place=f"buffer({report.buffer})" if report.buffer >= 0 else array,
        offset=report.offset,
    )


def _parties(report: LaunchReport) -> tuple[tuple[int, int], ...]:
    parties = ((report.threadgroup, report.thread), (report.other_threadgroup, report.other_thread))
    return tuple(party for party in parties if party[1] >= 0)


@functools.lru_cache(maxsize=256)
def _lines(library: Path, offsets: frozenset[int]) -> dict[int, int]:
    """For addresses in a module the line of the Metal text: of the call, where the access is inside an
    inlined library function.
    """
    command = ["addr2line", "-a", "-i", "-e", str(library), *(hex(offset) for offset in sorted(offsets))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SimulatorError(
            "addr2line, which finds the lines of reports, does not run: it is in binutils (Debian, Ubuntu: "
            f"apt install binutils); {error}"
        ) from error
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

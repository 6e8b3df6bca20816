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
from .toolchain import NATIVE


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


def _readable(report: LaunchReport, lines: dict[int, tuple[int, str]], module_low: int, kernel: str) -> Report:
    line, header = _place(report.line, report.pc, lines, module_low)
    other, other_header = _place(report.other_line, report.other_pc, lines, module_low)
    kind = REPORT_KINDS.get(report.kind, "unknown")
    message = f"kernel {kernel}: " + report.message.decode("utf-8", "replace")
    if header:
        message += f" (in {header})"
    if other:
        message += f"; the other access is at line {other}" + (f" of {other_header}" if other_header else "")
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


def _place(line: int, address: int, lines: dict[int, tuple[int, str]], module_low: int) -> tuple[int, str]:
    """The line of one party of a report, and the included file that it is of, "" for the text itself."""
    return (line, "") if line else lines.get(address - module_low - 1, (0, ""))


def _parties(report: LaunchReport) -> tuple[tuple[int, int], ...]:
    parties = ((report.threadgroup, report.thread), (report.other_threadgroup, report.other_thread))
    return tuple(party for party in parties if party[1] >= 0)


# The shim by the end of its path: it may have been precompiled by another copy of this package.
_LIBRARY_PLACES = (f"/{'/'.join(NATIVE.parts[-4:])}/", "/include/c++/")


@functools.lru_cache(maxsize=256)
def _lines(library: Path, offsets: frozenset[int]) -> dict[int, tuple[int, str]]:
    """For addresses in a module the line of the Metal text: of the call, where the access is inside an
    inlined library function. With the name of the included file, if the line is of one.
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


def _first_own_lines(output: Iterable[str]) -> Iterable[tuple[int, tuple[int, str]]]:
    """Of each address the innermost frame outside the shim: frames stand below their address, innermost first."""
    address = None
    for text in output:
        if text.startswith("0x"):
            address = int(text, 16)
            continue
        found = re.match(r"(.*):(\d+)", text)
        if found is None or address is None or found.group(2) == "0":
            continue
        file, line = Path(found.group(1)), int(found.group(2))
        if not any(place in found.group(1) for place in _LIBRARY_PLACES):
            yield address, (line, "" if file.name == FILE_NAME else str(file))
            address = None

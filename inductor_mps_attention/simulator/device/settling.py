"""Lets autograd's threads finish what they hold of Python before the interpreter ends.

`backward()` returns before the device's thread has dropped its last Python objects, for which it needs Python's lock. A
thread that asks for the lock while the interpreter ends is unwound through C++, and the process aborts with "terminate
called without an active exception". Programs that end right after a backward would fail at their very end.
"""

from __future__ import annotations

import time
from pathlib import Path

_THREAD_NAME = "pt_autograd"
_INTERVAL = 0.01
_LONGEST = 2.0


def settle() -> None:
    """Returns once no thread of autograd's has run for two intervals in a row; at once where there is none."""
    deadline = time.monotonic() + _LONGEST
    before, quiet = _switches(), 0
    while before and quiet < 2 and time.monotonic() < deadline:
        time.sleep(_INTERVAL)  # without the lock, which is what a waiting thread needs
        after = _switches()
        quiet = quiet + 1 if after == before else 0
        before = after


def _switches() -> dict[str, str]:
    """How often each of the threads was put to sleep so far: a thread that waits for work stays as it is."""
    counts = ((task.name, _switches_of(task)) for task in Path("/proc/self/task").iterdir())
    return {name: count for name, count in counts if count}


def _switches_of(task: Path) -> str:
    """Empty for a thread that is not autograd's, or that has ended meanwhile."""
    try:
        is_ours = (task / "comm").read_text().startswith(_THREAD_NAME)
        return (task / "status").read_text().partition("voluntary_ctxt_switches")[2] if is_ours else ""
    except OSError:
        return ""

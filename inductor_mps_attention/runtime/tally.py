"""How often each kernel role was launched in this process."""

from __future__ import annotations

import threading
from collections import defaultdict

_counts: defaultdict[str, int] = defaultdict(int)
_lock = threading.Lock()


def count(role: str) -> None:
    """One launch more of the role of this name. Locked: autograd launches backward kernels from a thread of its own."""
    with _lock:
        _counts[role] += 1


def launches() -> dict[str, int]:
    """Launches by role name, of the roles that were launched."""
    with _lock:
        return dict(_counts)


def reset_launches() -> None:
    """Back to no launches."""
    with _lock:
        _counts.clear()

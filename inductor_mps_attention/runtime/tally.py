"""How often each kernel role was launched in this process."""

from __future__ import annotations

import threading
from collections import Counter

from inductor_mps_attention.codegen import Role

_counts: Counter[str] = Counter()
_lock = threading.Lock()


def count(role: Role) -> None:
    """One launch more. Locked: the autograd engine launches backward kernels from a thread of its own."""
    with _lock:
        _counts[role.value] += 1


def launches() -> dict[str, int]:
    """Launches by role name, of the roles that were launched."""
    with _lock:
        return dict(_counts)


def reset_launches() -> None:
    """Back to no launches."""
    with _lock:
        _counts.clear()

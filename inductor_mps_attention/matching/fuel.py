"""How many rewrites this process may still make: `fuel=n` bisects a wrong result to one rewrite."""

from __future__ import annotations

import threading
import uuid

_PROCESS = uuid.uuid4().hex


class Fuel:
    """Counts the rewrites of the process. A limit is given with each question, so several passes share one count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = 0

    def take(self, limit: int | None) -> bool:
        """Uses one unit; False if `limit` units are used already. None is no limit."""
        with self._lock:
            if limit is not None and self._used >= limit:
                return False
            self._used += 1
            return True

    def state(self) -> tuple[str, int]:
        """What decides how the next graph comes out: never the same in two processes, whose fuel is not shared."""
        with self._lock:
            return _PROCESS, self._used

    def reset(self) -> None:
        with self._lock:
            self._used = 0

"""Which sites the passes of this process met: totals for `stats()`, and lists for `explain()`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .site import Site


class Recorder:
    """Thread-safe; a site declined for two reasons counts once under each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fused = 0
        self._declined: Counter[str] = Counter()
        self._listeners: list[list[Site]] = []

    def record(self, sites: Iterable[Site]) -> None:
        with self._lock:
            for site in sites:
                self._fused += site.fused
                self._declined.update({rejection.reason.value for rejection in site.reasons})
                for listener in self._listeners:
                    listener.append(site)

    def totals(self) -> tuple[int, dict[str, int]]:
        with self._lock:
            return self._fused, dict(self._declined)

    def reset(self) -> None:
        with self._lock:
            self._fused = 0
            self._declined.clear()

    @contextmanager
    def recording(self) -> Iterator[list[Site]]:
        """The sites met within the block, by any thread."""
        sites: list[Site] = []
        with self._lock:
            self._listeners.append(sites)
        try:
            yield sites
        finally:
            with self._lock:
                self._listeners = [listener for listener in self._listeners if listener is not sites]

"""How a part of the demo says how far it is, without knowing of terminals."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Runs follow one another: `begin` starts the next, `advance` ends one of its steps."""

    def begin(self, run: str, steps: int, note: str = "") -> None:
        """A run of so many steps starts; `note` says what it does first."""

    def advance(self, note: str = "") -> None:
        """A step of the current run is done; `note` says what came out."""


class Silent:
    """Progress that nobody watches."""

    def begin(self, run: str, steps: int, note: str = "") -> None:
        """Say nothing."""

    def advance(self, note: str = "") -> None:
        """Say nothing."""

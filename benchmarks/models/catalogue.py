"""All entries, of those libraries that are installed."""

from __future__ import annotations

from . import decoders, encoders, vision
from .entry import Entry
from .libraries import installed


def entries(only: list[str]) -> list[Entry]:
    """Those whose name has one of `only` in it; all if there are none."""
    found = [*decoders.ENTRIES, *encoders.ENTRIES, *vision.ENTRIES]
    if installed("diffusers"):
        from . import diffusion

        found += diffusion.ENTRIES
    if installed("timm"):
        from . import pictures

        found += pictures.ENTRIES
    return [entry for entry in found if not only or any(part.lower() in entry.name.lower() for part in only)]

"""A hash of the source files of a folder: what caches and tuned files of another version are told apart by."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

_SUFFIXES = (".py", ".jinja")


@functools.cache
def digest(folder: Path, without: str | None = None) -> bytes:
    """Over the names and contents of all sources and templates below `folder`, but those below a folder `without`.

    Read once: what is imported does not change with the files.
    """
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.suffix in _SUFFIXES and without not in file.relative_to(folder).parts:
            found.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return found.digest()

"""`dump_dir`: the graph before and after the pass, and what was found, as files for people to compare."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from torch.fx import Graph

from .site import Site


def dumped(graph: Graph, dump_dir: str | None, fuse: Callable[[], list[Site]]) -> list[Site]:
    """`fuse()`, which rewrites `graph`; into the folder, if any, go its text before and after and the sites as JSON.

    Each graph gets the next free number: 000_before.txt, 000_after.txt, 000_sites.json. The text before is there also
    when `fuse` raises.
    """
    if dump_dir is None:
        return fuse()
    stem = _claim(Path(dump_dir))
    stem.with_name(stem.name + "_before.txt").write_text(f"{graph}\n")
    sites = fuse()
    stem.with_name(stem.name + "_after.txt").write_text(f"{graph}\n")
    stem.with_name(stem.name + "_sites.json").write_text(
        json.dumps([site.to_json() for site in sites], indent=2) + "\n"
    )
    return sites


def _claim(folder: Path) -> Path:
    """The next number that no other process or thread has: a file is made exclusively for it."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*_before.txt")))
    while True:
        stem = folder / f"{number:03d}"
        try:
            os.close(os.open(f"{stem}_before.txt", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            number += 1
        else:
            return stem

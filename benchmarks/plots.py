"""Records -> pictures, by matplotlib: ratios and memory over length, one picture for each suite and engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from .contestants import OURS

Value = Callable[[dict[str, Any], str], float | None]


def draw(made: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Draws every picture that the records give; gives the files."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = _pictures(made, folder)
    for path, (group, value, label) in pictures.items():
        _draw_one(group, value, label, path)
    return list(pictures)


def planned(made: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """The files that `draw` would write."""
    return list(_pictures(made, folder))


def _pictures(made: Sequence[dict[str, Any]], folder: Path) -> dict[Path, tuple[list[dict[str, Any]], Value, str]]:
    """For each suite and engine one of ratios and one of memory, where the records have two lengths or more."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in made:
        if "problem" in record:
            groups[record["suite"], record["engine"]["name"]].append(record)
    found: dict[Path, tuple[list[dict[str, Any]], Value, str]] = {}
    for (suite, engine), group in sorted(groups.items()):
        for kind, value, label in (("ratio", _ratio, "baseline over ours"), ("memory", _peak, "peak memory, MiB")):
            lines = _lines(group, value)
            if any(len({length for length, _ in points}) > 1 for points in lines.values()):
                found[folder / f"{suite}_{engine}_{kind}.png"] = group, value, label
    return found


def _ratio(record: dict[str, Any], name: str) -> float | None:
    found = record.get("ratios", {}).get(name, {}).get("ratio")
    return None if found is None else float(found)


def _peak(record: dict[str, Any], name: str) -> float | None:
    found = record["results"].get(name, {}).get("peak_bytes")
    return None if found is None else float(found) / 2**20


def _draw_one(group: list[dict[str, Any]], value: Value, label: str, path: Path) -> None:
    """One panel a head dim, one line for each contestant and family of problems."""
    dims = sorted({record["problem"]["head_dim"] for record in group})
    figure, panels = plt.subplots(1, len(dims), figsize=(6.5 * len(dims), 4.5), squeeze=False, sharey=True)
    for panel, dim in zip(panels[0], dims, strict=True):
        lines = _lines([record for record in group if record["problem"]["head_dim"] == dim], value)
        for name, points in sorted(lines.items()):
            points.sort()
            panel.plot(*zip(*points, strict=True), marker="o", label=name)
        panel.set(title=f"head dim {dim}", xlabel="keys", ylabel=label, xscale="log", yscale="log")
        panel.set_xscale("log", base=2)
        panel.grid(True, which="both", alpha=0.3)
        if lines:
            panel.legend(fontsize="x-small")
    figure.suptitle(f"{group[0]['suite']}: {group[0]['engine']['words']}")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _lines(group: list[dict[str, Any]], value: Value) -> dict[str, list[tuple[int, float]]]:
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for record in group:
        for name in record["results"]:
            found = value(record, name)
            if found is not None and (name != OURS or value is _peak):
                lines[f"{name}, {_family(record)}"].append((record["problem"]["kv_len"], found))
    return dict(lines)


def _family(record: dict[str, Any]) -> str:
    """The label of a problem without its lengths and head dim, which the axes show."""
    kept = [word for word in record["label"].split() if word[0] not in "SD"]
    return " ".join(kept)

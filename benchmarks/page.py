"""The results page: every result file of a folder as tables and pictures, in Markdown. Made by a command alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import plots, records, tables
from .contestants import OURS
from .prediction import picture

FOLDER = Path(__file__).parent / "results"
ROOFLINE = Path("pictures") / "predicted_roofline.png"
HEAD = """\
# Results

Made by `python -m benchmarks page` from the result files in this folder; do not edit. [The method](../README.md) says
what a figure means. A ratio is a baseline's time over ours, on the same engine in the same run; "refused" means that
the baseline was too weak on that problem for a ratio to say anything.
"""


def write(folder: Path = FOLDER) -> Path:
    """Draws the pictures and writes README.md of the folder."""
    page = folder / "README.md"
    files = sorted(folder.glob("*.jsonl"))
    for file in files:
        plots.draw(records.read(file), folder / "pictures" / file.stem)
    picture.draw(folder / ROOFLINE)
    page.write_text(text(folder))
    return page


def text(folder: Path = FOLDER) -> str:
    """The page, with links to the pictures that `write` draws."""
    parts = [HEAD]
    for file in sorted(folder.glob("*.jsonl")):
        made = records.read(file)
        first = made[0]
        commits = dict.fromkeys(record["commit"] for record in made)
        facts = ", ".join(f"{name} {value}" for name, value in first["engine"]["facts"].items() if name != "device")
        parts.append(f"## {file.stem}\n")
        parts.append(f"**{first['engine']['words']}** on {first['engine']['facts']['device']} ({facts}).")
        parts.append(f"Commit {' and '.join(commits)}, torch {first['versions']['torch']}, {first['date'][:10]}.\n")
        for suite in dict.fromkeys(record["suite"] for record in made):
            own = [record for record in made if record["suite"] == suite]
            parts += [f"### {suite}\n", *_table(own), *_pictures(own, folder, file)]
    parts.append("## What a model expects on Apple chips\n")
    parts.append(f"![predicted roofline]({ROOFLINE.as_posix()})\n")
    return "\n".join(parts).rstrip() + "\n"


def _table(made: Sequence[dict[str, Any]]) -> Iterator[str]:
    ceilings = [record["results"]["ceilings"] for record in made if "ceilings" in record["case"]]
    for found in ceilings:
        products = ", ".join(
            f"{name.replace('_', ' ')} {found[name] / 1e12:.1f} TFLOP/s"
            for name in ("registers", "threadgroup_straight", "threadgroup_transposed")
        )
        yield f"Ceilings, {found['dtype']}: products from {products}; copy {found['copy'] / 1e12:.2f} TB/s.\n"
    cases = [record for record in made if "ceilings" not in record["case"]]
    timed = made[0]["engine"]["times_are_meaningful"]
    shown = {name: [tables.cell(record["results"].get(name, {}), timed) for record in cases] for name in _names(cases)}
    if timed and any("flops_per_s" in record["results"].get(OURS, {}) for record in cases):
        rates = [record["results"].get(OURS, {}).get("flops_per_s") for record in cases]
        shown["TFLOP/s"] = [f"{rate / 1e12:.1f}" if rate else "" for rate in rates]
        shown["baseline over ours"] = [tables.ratios(record) for record in cases]
    shown = {name: cells for name, cells in shown.items() if not set(cells) <= {tables.NOT_TIMED, tables.UNABLE}}
    yield f"| case | {' | '.join(shown)} |"
    yield f"|---|{'---|' * len(shown)}"
    for record, *cells in zip(cases, *shown.values(), strict=True):
        yield f"| {record['label']} | {' | '.join(cells)} |"
    yield ""


def _names(cases: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for record in cases for name in record["results"]))


def _pictures(made: Sequence[dict[str, Any]], folder: Path, file: Path) -> Iterator[str]:
    for path in plots.planned(made, folder / "pictures" / file.stem):
        yield f"![{path.stem.replace('_', ' ')}]({path.relative_to(folder).as_posix()})\n"

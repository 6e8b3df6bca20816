"""Records -> tables for people, by rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from . import records
from .contestants import OURS

NOT_TIMED, UNABLE = "not timed", "-"


def of_run(made: Sequence[dict[str, Any]]) -> Table:
    """One line a case: each contestant's time or peak, and the ratios that may be given."""
    cases = [record for record in made if "ceilings" not in record["case"]]
    names = list(dict.fromkeys(name for record in cases for name in record["results"]))
    first = made[0]
    table = Table(title=f"{first['suite']}: {first['engine']['words']}", caption=_caption(first))
    table.add_column("case", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("TFLOP/s", justify="right")
    table.add_column("baseline over ours", justify="left")
    for record in cases:
        timed = record["engine"]["times_are_meaningful"]
        cells = [cell(record["results"].get(name, {}), timed) for name in names]
        rate = timed and record["results"].get(OURS, {}).get("flops_per_s")
        table.add_row(record["label"], *cells, f"{rate / 1e12:.1f}" if rate else "", ratios(record))
    return table


def of_plans(shared: dict[str, Any], made: Sequence[dict[str, Any]]) -> Table:
    """One line a kernel: its tilings from the fastest to the slowest."""
    kernels: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in made:
        key = tuple(record[name] for name in ("dtype", "head_dim", "length", "role", "causal"))
        kernels.setdefault(key, []).append(record)
    table = Table(title=f"tilings, TFLOP/s: {shared['engine']['words']}", caption=_caption(shared))
    table.add_column("kernel", no_wrap=True)
    table.add_column("tilings")
    for (dtype, head_dim, length, role, causal), timed in kernels.items():
        ordered = sorted(timed, key=lambda record: float(record["seconds"]))
        label = f"{dtype} D{head_dim} S{length} {role} {'causal' if causal else 'full'}"
        table.add_row(label, ", ".join(f"{record['tiling']} {record['tflops']:.0f}" for record in ordered))
    return table


def ratios(record: dict[str, Any]) -> str:
    """What the workload says itself, then the ratios of a record in words; a refused one with its reason."""
    parts = [record["note"]] if "note" in record else []
    for name, ratio in record.get("ratios", {}).items():
        parts.append(f"{name} {ratio['ratio']:.2f}x" if "ratio" in ratio else f"{name} refused: {ratio['refused']}")
    return "; ".join(parts)


def of_ceilings(made: Sequence[dict[str, Any]]) -> Table | None:
    """What the engine can do at most, or None where that was not measured."""
    measured = [record["results"]["ceilings"] for record in made if "ceilings" in record["case"]]
    if not measured:
        return None
    table = Table(title=f"ceilings: {made[0]['engine']['words']}")
    for heading in ("dtype", "registers TFLOP/s", "threadgroup straight", "transposed", "copy TB/s"):
        table.add_column(heading, justify="right")
    for found in measured:
        rates = (found["registers"], found["threadgroup_straight"], found["threadgroup_transposed"], found["copy"])
        table.add_row(found["dtype"], *(f"{rate / 1e12:.1f}" for rate in rates))
    return table


def of_comparison(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> Table:
    """Cases that both have: how many times faster the second is, and whether that is beyond both spreads."""
    known = {records.key(record): record for record in before}
    table = Table(title=f"{_run_name(before)} against {_run_name(after)}")
    for heading, justify in (("suite", "left"), ("case", "left"), ("before", "right"), ("after", "right")):
        table.add_column(heading, justify=justify, no_wrap=heading == "case")  # type: ignore[arg-type]
    table.add_column("faster by", justify="right")
    table.add_column("")
    for record in after:
        other = known.get(records.key(record))
        if other is None or "ceilings" in record["case"]:
            continue
        old, new = (r["results"].get(OURS, {}) for r in (other, record))
        if "median_s" not in old or "median_s" not in new:
            continue
        factor = old["median_s"] / new["median_s"]
        noise = old["spread"] + new["spread"]
        verdict = "within the spread" if abs(factor - 1) <= noise else "faster" if factor > 1 else "slower"
        table.add_row(record["suite"], record["label"], _time(old), _time(new), f"{factor:.2f}x", verdict)
    return table


def _run_name(made: Sequence[dict[str, Any]]) -> str:
    return f"{made[0]['commit']} ({made[0]['date'][:10]}, {made[0]['engine']['name']})"


def _caption(record: dict[str, Any]) -> str:
    facts = record["engine"]["facts"]
    torch_version = record["versions"]["torch"]
    return f"{facts['device']}, torch {torch_version}, commit {record['commit']}, {record['date']}"


def cell(result: dict[str, Any], timed: bool) -> str:
    """A contestant's time with half its spread, its peak, or, where times mean nothing, its products."""
    if "unable" in result:
        return UNABLE
    if "peak_bytes" in result:
        return f"{result['peak_bytes'] / 2**20:.2f} MiB"
    if not timed:
        return f"{result['counters']['products']} products" if "counters" in result else NOT_TIMED
    return _time(result) if "median_s" in result else ""


def _time(result: dict[str, Any]) -> str:
    seconds = result["median_s"]
    shown = f"{seconds * 1e3:.3f} ms" if seconds > 1e-4 else f"{seconds * 1e6:.1f} us"
    return f"{shown} ±{result['spread'] / 2:.0%}"

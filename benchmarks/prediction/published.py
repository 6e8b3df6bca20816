"""Published measurements of attention on Apple GPUs, and how well the model gives them back.

Fused kernels have one efficiency for each implementation, generation, role and dtype, fitted as the median over the
rows that are not kept out. The constants of the unfused pipelines were chosen by hand on these rows, so none of theirs
is kept out.
"""

from __future__ import annotations

import csv
import hashlib
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inductor_mps_attention.codegen import cost

FILE = Path(__file__).parent.parent / "data" / "published.csv"
_UNFUSED = {"mlx unfused": cost.unfused, "torch mpsgraph": cost.mps_graph}
_HELD_OUT_ONE_IN = 6

Group = tuple[str, int, str, str]


@dataclass(frozen=True)
class Row:
    """One measurement: its chip, which for some is inferred from its rate, the implementation, and the problem."""

    chip: str
    implementation: str
    dtype: str
    work: cost.Work
    seconds: float
    source: str
    held_out: bool

    @property
    def group(self) -> Group:
        """What one efficiency is fitted for: M1 and M2 count as one generation, M3 and M4 too."""
        generation = cost.CHIPS[self.chip].generation
        return self.implementation, (generation + 1) // 2, self.work.role, self.dtype

    @property
    def is_fused(self) -> bool:
        return self.implementation not in _UNFUSED


@dataclass(frozen=True)
class Accuracy:
    """Relative errors of predicted seconds: how many, the median of their sizes, the worst, and their mean."""

    rows: int
    median: float
    worst: float
    bias: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Accuracy | None:
        """None for no errors."""
        if not errors:
            return None
        sizes = [abs(error) for error in errors]
        return cls(len(errors), statistics.median(sizes), max(sizes), statistics.fmean(errors))


def rows() -> list[Row]:
    """All rows of the file. About one fused row in six is kept out of the fit, by a digest of its problem."""
    with FILE.open() as file:
        return [_row(values) for values in csv.DictReader(file)]


def _row(values: Mapping[str, str]) -> Row:
    names = ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim")
    sizes = {name: int(values[name]) for name in names}
    share = 1.0
    if values["causal"] == "1":
        share = cost.causal_share(sizes["q_len"], sizes["kv_len"], 32, 16 if sizes["head_dim"] >= 128 else 32)
    work = cost.Work(values["role"], 4 if values["dtype"] == "float32" else 2, **sizes, share=share)
    digest = hashlib.sha256(repr((values["chip"], values["implementation"], values["dtype"], work)).encode()).digest()
    held_out = values["implementation"] not in _UNFUSED and digest[0] % _HELD_OUT_ONE_IN == 0
    seconds, source = float(values["seconds"]), values["source"]
    return Row(values["chip"], values["implementation"], values["dtype"], work, seconds, source, held_out)


def fit(measured: Sequence[Row]) -> dict[Group, float]:
    """Efficiencies from the fused rows that are not kept out. A group all of whose rows are kept out has none."""
    found: dict[Group, list[float]] = defaultdict(list)
    for row in measured:
        if row.is_fused and not row.held_out:
            whole = cost.fused(row.work, cost.CHIPS[row.chip], 1.0).seconds - cost.LAUNCH_SECONDS
            found[row.group].append(whole / row.seconds)
    return {group: statistics.median(efficiencies) for group, efficiencies in found.items()}


def predicted(row: Row, efficiencies: Mapping[Group, float]) -> float:
    """Seconds by the model."""
    chip = cost.CHIPS[row.chip]
    if not row.is_fused:
        return _UNFUSED[row.implementation](row.work, chip)
    return cost.fused(row.work, chip, efficiencies[row.group]).seconds


def errors(measured: Sequence[Row], efficiencies: Mapping[Group, float]) -> dict[Row, float]:
    """predicted / measured - 1, of all rows that have an efficiency."""
    known = [row for row in measured if not row.is_fused or row.group in efficiencies]
    return {row: predicted(row, efficiencies) / row.seconds - 1 for row in known}


def fused_errors(found: Mapping[Row, float], *, held_out: bool, role: str | None = None) -> list[float]:
    """Of the fused rows that were kept out of the fit, or of the others; of one role, or of all."""
    wanted = [row for row in found if row.is_fused and row.held_out == held_out and role in (None, row.work.role)]
    return [found[row] for row in wanted]


def ratio_errors(measured: Sequence[Row], efficiencies: Mapping[Group, float]) -> list[float]:
    """The same for unfused over fused, where both were published for one problem on one chip."""
    pairs: dict[tuple[str, str, cost.Work], dict[bool, Row]] = defaultdict(dict)
    for row in measured:
        if not row.is_fused or row.group in efficiencies:
            pairs[row.chip, row.source, row.work][row.is_fused] = row
    found = []
    for pair in pairs.values():
        if len(pair) == 2:
            model = predicted(pair[False], efficiencies) / predicted(pair[True], efficiencies)
            found.append(model / (pair[False].seconds / pair[True].seconds) - 1)
    return found

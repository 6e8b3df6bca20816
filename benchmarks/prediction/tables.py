"""The model's tables: how well it holds, and what it says of our plans on each chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inductor_mps_attention.codegen import APPLE, KernelPlan, Rejected, Role, cost, family_of, plan
from inductor_mps_attention.codegen import Problem as Planned
from rich.table import Table

from ..problem import Problem
from . import published
from .published import Accuracy

WORDS = "by a model fitted to published measurements; nothing here was measured on an Apple GPU by this project"
_ROLES = {"forward": (Role.FORWARD,), "backward": (Role.BACKWARD_DQ, Role.BACKWARD_DKV)}


def check() -> Table:
    """Errors of the model over the published rows: fitted ones, those kept out, unfused ones, ratios."""
    measured = published.rows()
    efficiencies = published.fit(measured)
    table = Table(title="the model against published rows, 1024 keys and more", caption=f"{len(measured)} rows")
    for heading in ("implementation", "role", "dtype", "efficiency", "rows", "median error", "worst", "bias"):
        table.add_column(heading, justify="right" if heading in ("efficiency", "rows") else "left")
    found = published.errors(measured, efficiencies)
    for group in sorted({row.group for row in found}):
        own = [error for row, error in found.items() if row.group == group and not row.held_out]
        generations = {1: "M1, M2", 2: "M3, M4", 3: "M5"}[group[1]]
        share = f"{efficiencies[group]:.2f}" if group in efficiencies else "-"
        _add(table, f"{group[0]} on {generations}", group[2], group[3], share, Accuracy.of(own))
    table.add_section()
    for name, errors in _totals(measured, found, efficiencies).items():
        _add(table, name, "", "", "", Accuracy.of(errors))
    return table


def _totals(
    measured: Sequence[published.Row], found: dict[published.Row, float], efficiencies: dict[published.Group, float]
) -> dict[str, list[float]]:
    roles = ("forward", "backward_dq", "backward_dkv")
    return {
        **{f"fused, fitted, {role}": published.fused_errors(found, held_out=False, role=role) for role in roles},
        **{f"fused, kept out, {role}": published.fused_errors(found, held_out=True, role=role) for role in roles},
        "fused, fitted": published.fused_errors(found, held_out=False),
        "fused, kept out of the fit": published.fused_errors(found, held_out=True),
        "unfused": [error for row, error in found.items() if not row.is_fused],
        "unfused over fused": published.ratio_errors(measured, efficiencies),
    }


def _add(table: Table, name: str, role: str, dtype: str, efficiency: str, accuracy: Accuracy | None) -> None:
    if accuracy is not None:
        shown = (f"{accuracy.median:.1%}", f"{accuracy.worst:.0%}", f"{accuracy.bias:+.1%}")
        table.add_row(name, role, dtype, efficiency, str(accuracy.rows), *shown)


@dataclass(frozen=True)
class Expected:
    """Our kernels on one chip: seconds, what bounds the longest of them, and the times of the others over it."""

    seconds: float
    bound: str
    over_unfused: float
    over_mps_graph: float


def expected(problem: Problem, direction: str, chip: cost.Chip) -> Expected:
    """`direction` is "forward" or "backward". ValueError where our planner has no kernel."""
    found = [kernel_prediction(problem, role, chip)[1] for role in roles_of(direction)]
    seconds = sum(prediction.seconds for prediction in found)
    whole = _work(problem, "forward" if direction == "forward" else "backward_dkv", None)
    bound = max(found, key=lambda prediction: prediction.seconds).bound
    return Expected(seconds, bound, cost.unfused(whole, chip) / seconds, cost.mps_graph(whole, chip) / seconds)


def roles_of(direction: str) -> tuple[Role, ...]:
    """The kernels of a forward or backward that count; delta is a few percent of a backward."""
    return _ROLES[direction]


def kernel_prediction(problem: Problem, role: Role, chip: cost.Chip) -> tuple[cost.Work, cost.Prediction]:
    """One of our kernels on a chip, by its plan. ValueError where the planner has none."""
    bounded = (problem.lower is not None, problem.upper is not None)
    planned = Planned(problem.dtype, problem.head_dim, problem.head_dim, *bounded, aligned=True)
    made = plan(planned, role, replace(APPLE, family=family_of(chip.name)))
    if isinstance(made, Rejected):
        raise ValueError(f"{problem.label()}: {made.message}")
    work = _work(problem, role.value, made)
    resident = cost.resident(chip, made.register_bytes, made.threadgroup_bytes, made.tiling.simdgroups)
    efficiency = cost.assumed_efficiency(role.value, problem.element_size, chip)
    return work, cost.fused(work, chip, efficiency, resident)


def _work(problem: Problem, role: str, made: KernelPlan | None) -> cost.Work:
    """The problem as the plan's tiles see it; without a plan as unfused kernels do, which skip nothing."""
    sizes = (problem.batch, problem.heads, problem.kv_heads, problem.q_len, problem.kv_len, problem.head_dim)
    share = problem.kept_share
    if made is not None and problem.is_causal:
        share = cost.causal_share(problem.q_len, problem.kv_len, made.block_rows, made.tiling.tile)
    return cost.Work(role, problem.element_size, *sizes, share=share)


def predict(problem: Problem, chips: Sequence[str]) -> Table:
    """Milliseconds of our forward and backward on each chip, what bounds them, and the ratios to expect."""
    table = Table(title=f"{problem.label()}, {WORDS}", caption=_error_bars())
    table.add_column("chip")
    for direction in _ROLES:
        for heading in (f"{direction} ms", "bound", "over unfused", "over MPSGraph"):
            table.add_column(heading, justify="right")
    for name in chips:
        cells = []
        for direction in _ROLES:
            found = expected(problem, direction, cost.CHIPS[name])
            cells += [
                f"{found.seconds * 1e3:.2f}",
                found.bound,
                f"{found.over_unfused:.1f}x",
                f"{found.over_mps_graph:.1f}x",
            ]
        table.add_row(name, *cells)
    return table


def _error_bars() -> str:
    measured = published.rows()
    efficiencies = published.fit(measured)
    ratio = Accuracy.of(published.ratio_errors(measured, efficiencies))
    held = Accuracy.of([e for row, e in published.errors(measured, efficiencies).items() if row.held_out])
    assert ratio is not None
    assert held is not None
    return (
        f"over published rows kept out of the fit times are {held.median:.0%} off in the median, {held.worst:.0%} at "
        f"worst; ratios {ratio.median:.0%} and {ratio.worst:.0%}; our efficiency is assumed; below 1024 keys a guess"
    )

"""The predicted roofline of each chip with our plans on it."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from inductor_mps_attention.codegen import cost
from matplotlib.axes import Axes

from ..problem import Problem
from .tables import kernel_prediction, roles_of

CHIPS = ("M1", "M1 Max", "M2 Ultra", "M3 Max", "M4 Pro", "M5 Max")
_LENGTHS = (64, 256, 1024, 4096)
_MARKERS = {"forward": "o", "backward_dq": "s", "backward_dkv": "^"}


def draw(path: Path) -> Path:
    """One panel a chip: FLOP a second over FLOP a byte, float16, B1 H16, lengths from 64 to 4096."""
    figure, panels = plt.subplots(2, 3, figsize=(15, 8.5), sharex=True, sharey=True)
    for panel, name in zip(panels.flat, CHIPS, strict=True):
        _draw_chip(panel, cost.CHIPS[name])
    panels[0][0].legend(fontsize="x-small")
    for panel in panels[1]:
        panel.set_xlabel("FLOP a byte")
    for row in panels:
        row[0].set_ylabel("TFLOP/s")
    figure.suptitle("Expected of our plans by a model fitted to published rows; nothing was measured on an Apple GPU")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path


def _draw_chip(panel: Axes, chip: cost.Chip) -> None:
    peak, bandwidth = 2 * chip.instructions, chip.bandwidth
    intensities = [2.0**power for power in range(0, 15)]
    panel.plot(intensities, [min(peak, bandwidth * x) / 1e12 for x in intensities], color="black", label="roofline")
    for role in [*roles_of("forward"), *roles_of("backward")]:
        for dim in (64, 128):
            points = []
            for length in _LENGTHS:
                sizes = {"dtype": "float16", "batch": 1, "heads": 16, "head_dim": dim, "length": length}
                work, found = kernel_prediction(Problem.of(sizes), role, chip)
                flops = 2 * work.instructions
                points.append((flops / work.bytes, flops / found.seconds / 1e12))
            label = f"{role.value}, head dim {dim}"
            panel.plot(*zip(*points, strict=True), marker=_MARKERS[role.value], linestyle=":", label=label)
    panel.set(title=chip.name, xscale="log", yscale="log", ylim=(0.1, 40))
    panel.grid(True, which="both", alpha=0.3)

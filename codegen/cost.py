"""A model of attention's time on Apple GPUs: problems and plans -> seconds, and what bounds them. Imports no torch.

A kernel takes the longer of its arithmetic and its traffic, and a launch. Arithmetic is counted in lane instructions: a
core issues 128 a cycle, a score takes 2 D + 5 of them forward, 3 D + 5 for dq, 4 D + 5 for dk and dv (D the head dim, 5
for the softmax), at an efficiency that depends on the kernel, and at full rate only where enough simdgroups are
resident. The constants are fitted to published measurements by `python -m benchmarks predict --check`, which prints how
well they hold, rows kept out of the fit apart. Nothing here was measured by this project: use it to rank, and to expect
ratios within some 15 % from 1024 keys on; below that it is a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LANES = 128
"""Instructions that a core issues a cycle, all chips."""
BANDWIDTH_SHARE = 0.85
"""Of the specified bandwidth, what kernels reach."""
LAUNCH_SECONDS = 2e-6
GRAPH_LAUNCH_SECONDS = 2e-5
PARALLEL_POWER = 4.0
"""How sharply the rate saturates with the number of simdgroups."""


@dataclass(frozen=True)
class Chip:
    """One GPU. `bandwidth` in bytes a second, `cache_bytes` of the last level, `generation` 1 for M1."""

    name: str
    generation: int
    cores: int
    clock_hz: float
    bandwidth: float
    cache_bytes: float

    @property
    def instructions(self) -> float:
        """Lane instructions a second; a fused multiply-add is one, for float32 and 16 bits alike before M5."""
        return self.cores * LANES * self.clock_hz

    @property
    def saturation(self) -> float:
        """Simdgroups a core for full rate: fitted to single-head measurements of M1 Max and M4."""
        return 19.0 if self.generation <= 2 else 12.0

    @property
    def register_bytes(self) -> float:
        """Of a core."""
        return 208 * 1024

    @property
    def threadgroup_bytes(self) -> float:
        """Of a core."""
        return 60 * 1024


def _chip(name: str, cores: int, clock_ghz: float, gigabytes: float, cache_megabytes: float) -> Chip:
    return Chip(name, int(name[1]), cores, clock_ghz * 1e9, gigabytes * 1e9, cache_megabytes * 1e6)


CHIPS = {
    chip.name: chip
    for chip in (
        _chip("M1", 8, 1.278, 68, 8),
        _chip("M1 Pro", 16, 1.296, 200, 24),
        _chip("M1 Max", 32, 1.296, 400, 48),
        _chip("M1 Ultra", 64, 1.296, 800, 96),
        _chip("M2", 10, 1.398, 100, 8),
        _chip("M2 Pro", 19, 1.398, 200, 24),
        _chip("M2 Max", 38, 1.398, 400, 48),
        _chip("M2 Ultra", 76, 1.398, 800, 96),
        _chip("M3", 10, 1.398, 100, 8),
        _chip("M3 Pro", 18, 1.398, 150, 12),
        _chip("M3 Max", 40, 1.398, 400, 48),
        _chip("M3 Ultra", 80, 1.398, 819, 96),
        _chip("M4", 10, 1.398, 120, 8),
        _chip("M4 Pro", 20, 1.578, 273, 24),
        _chip("M4 Max", 40, 1.578, 546, 48),
        _chip("M5", 10, 1.578, 153, 8),
        _chip("M5 Pro", 20, 1.578, 307, 24),
        _chip("M5 Max", 40, 1.578, 614, 48),
    )
}
"""The largest configuration of each chip. M5 without its matrix units, which kernels of 8x8 products do not reach."""


# By role, and 16-bit or 32-bit elements: on M1 and M2, and later. An assumption about kernels that nobody has timed on
# an Apple GPU: a little below what public kernels of the same design reach there.
_ASSUMED_EFFICIENCY = {
    ("forward", 2): (0.80, 0.85),
    ("forward", 4): (0.60, 0.72),
    ("backward_dq", 2): (0.75, 0.82),
    ("backward_dq", 4): (0.55, 0.70),
    ("backward_dkv", 2): (0.70, 0.80),
    ("backward_dkv", 4): (0.50, 0.68),
}


def assumed_efficiency(role: str, element_size: int, chip: Chip) -> float:
    """The share of the full rate that our kernels are assumed to issue."""
    return _ASSUMED_EFFICIENCY[role, element_size][chip.generation > 2]


@dataclass(frozen=True)
class Work:
    """One attention kernel's problem. `role` is "forward", "backward_dq" or "backward_dkv"; `share` of the scores is
    visited, whole tiles.
    """

    role: str
    element_size: int
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    share: float = 1.0

    @property
    def scores(self) -> float:
        return self.batch * self.heads * self.q_len * self.kv_len * self.share

    @property
    def instructions(self) -> float:
        products = {"forward": 2, "backward_dq": 3, "backward_dkv": 4}[self.role]
        return self.scores * (products * self.head_dim + 5)

    @property
    def simdgroups(self) -> int:
        """Of eight rows each."""
        rows = self.kv_len if self.role == "backward_dkv" else self.q_len
        return self.batch * self.heads * math.ceil(rows / 8)

    @property
    def bytes(self) -> float:
        """Each tensor once; a backward kernel has twice the tensors of a forward."""
        rows = 2 * self.heads * self.q_len + 2 * self.kv_heads * self.kv_len
        return self.batch * rows * self.head_dim * self.element_size * (1 if self.role == "forward" else 2)


@dataclass(frozen=True)
class Prediction:
    """Seconds, and what they are spent on: "compute", "bandwidth", "occupancy" or "launch"."""

    seconds: float
    bound: str


def causal_share(q_len: int, kv_len: int, rows: int, tile: int) -> float:
    """The share of the scores in tiles of `tile` keys that blocks of `rows` queries visit; the last query sees all."""
    visited = 0
    for first in range(0, q_len, rows):
        seen = min(first + rows, q_len) + max(0, kv_len - q_len)
        visited += min(kv_len, math.ceil(seen / tile) * tile)
    return visited / (kv_len * math.ceil(q_len / rows))


def parallelism(chip: Chip, simdgroups: float, resident: float = math.inf) -> float:
    """The share of the full rate that so many simdgroups in all, at most `resident` a core, reach."""
    filled = min(simdgroups / chip.cores, resident) / chip.saturation
    return filled / float((1 + filled**PARALLEL_POWER) ** (1 / PARALLEL_POWER))


def resident(chip: Chip, kept_bytes: float, threadgroup_bytes: float, simdgroups: int) -> float:
    """Simdgroups that fit in a core: by the registers of 32 threads with `kept_bytes` and 64 more of addresses and
    temporaries, and by threadgroup memory.
    """
    by_registers = chip.register_bytes // (32 * (kept_bytes + 64))
    by_memory = chip.threadgroup_bytes // max(threadgroup_bytes, 1) * simdgroups
    return min(32.0, by_registers, by_memory)


def fused(work: Work, chip: Chip, efficiency: float, resident_simdgroups: float = math.inf) -> Prediction:
    """A fused kernel that issues `efficiency` of the chip's rate when it is filled."""
    filled = parallelism(chip, work.simdgroups, resident_simdgroups)
    compute = work.instructions / (chip.instructions * efficiency * filled)
    traffic = work.bytes / (BANDWIDTH_SHARE * chip.bandwidth)
    seconds = max(compute, traffic) + LAUNCH_SECONDS
    if seconds < 4 * LAUNCH_SECONDS:
        return Prediction(seconds, "launch")
    if traffic > compute:
        return Prediction(seconds, "bandwidth")
    return Prediction(seconds, "occupancy" if filled < 0.9 else "compute")


def unfused(work: Work, chip: Chip) -> float:
    """Seconds of two products and a softmax as kernels of their own, as MLX's; of five kernels in a backward, where
    `work.role` is not "forward" and stands for the whole backward. Causal problems save nothing and add a mask.
    """
    scores = work.batch * work.heads * work.q_len * work.kv_len
    product, traffic = _unfused_parts(work, chip, scores)
    larger = max(product, traffic)
    if work.role != "forward":
        return 4 * larger + 3 * traffic + 5 * LAUNCH_SECONDS
    mask = 2.5 * traffic if work.share < 1 else 0.0
    return 2 * larger + 2 * traffic + mask + 3 * LAUNCH_SECONDS


def mps_graph(work: Work, chip: Chip) -> float:
    """Seconds of PyTorch's attention by MPSGraph, which is all there is for training: products, and 25 bytes of traffic
    a score, 40 with a causal mask. For a backward four products and 60 bytes, a guess.
    """
    scores = work.batch * work.heads * work.q_len * work.kv_len
    a_score, products = (60.0, 4) if work.role != "forward" else (40.0 if work.share < 1 else 25.0, 2)
    rate = _product_rate(work, chip, scores)
    arithmetic = products * 2 * scores * work.head_dim / rate
    return arithmetic + scores * a_score / _cached_bandwidth(chip, scores, work) + GRAPH_LAUNCH_SECONDS


def _unfused_parts(work: Work, chip: Chip, scores: float) -> tuple[float, float]:
    """Seconds of one product, and of reading or writing all scores."""
    product = 2 * scores * work.head_dim / _product_rate(work, chip, scores)
    return product, scores * work.element_size / _cached_bandwidth(chip, scores, work)


def _product_rate(work: Work, chip: Chip, scores: float) -> float:
    """FLOP a second of a matrix product of this head dim; M5 has units for them, of 1 TFLOP/s a core and more."""
    if chip.generation >= 5:
        return chip.cores * 1e12 * parallelism(chip, max(1.0, scores / 1024))
    efficiency = 0.93 if work.head_dim >= 96 else 0.85
    return 2 * chip.instructions * efficiency * parallelism(chip, max(1.0, scores / 1024))


def _cached_bandwidth(chip: Chip, scores: float, work: Work) -> float:
    """Scores that stay in half of the last-level cache move at twice the rate of memory."""
    stays = scores * work.element_size < chip.cache_bytes / 2
    return chip.bandwidth * BANDWIDTH_SHARE * (2 if stays else 1)

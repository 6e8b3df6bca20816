"""How good the unfused pipeline is on this engine, and whether a ratio over it says anything.

A ratio over a slow baseline flatters. So the baseline's own kernels are timed, and the ratio is refused unless its
products run at LEAST_PRODUCT_SHARE of the rate of our own kernel and its softmax moves bytes at LEAST_COPY_SHARE of a
plain copy's rate, both in the same run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from . import baseline
from .ceilings import Ceilings
from .engines.engine import Engine
from .problem import Problem
from .torch_contestants import Inputs

LEAST_PRODUCT_SHARE = 0.60
LEAST_COPY_SHARE = 0.75


@dataclass(frozen=True)
class Quality:
    """FLOP a second of its two products together, bytes a second of its softmax, and their shares of what this engine
    can do.
    """

    product_rate: float
    product_share_of_ceiling: float
    softmax_rate: float
    softmax_share_of_copy: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def refusal(self, fused_rate: float) -> str | None:
        """Why a ratio over this baseline says nothing; `fused_rate` in FLOP a second. None if it says something."""
        if self.product_rate < LEAST_PRODUCT_SHARE * fused_rate:
            share = self.product_rate / fused_rate
            return f"the baseline's products run at {share:.0%} of ours; {LEAST_PRODUCT_SHARE:.0%} is the least"
        if self.softmax_share_of_copy < LEAST_COPY_SHARE:
            share, least = self.softmax_share_of_copy, LEAST_COPY_SHARE
            return f"the baseline's softmax moves bytes at {share:.0%} of a copy's rate; {least:.0%} is the least"
        return None


def of_forward(
    engine: Engine, pipeline: baseline.Unfused, problem: Problem, given: Inputs, ceilings: Ceilings, seconds: float
) -> Quality:
    """Times the three kernels of the forward alone."""
    scores = given.q.new_empty((*given.q.shape[:3], problem.kv_len))
    out = torch.empty_like(given.q)
    first = engine.measure(lambda: pipeline.scores(given.q, given.k, scores, problem.scale), seconds)
    softmax = engine.measure(lambda: pipeline.softmax(scores), seconds)
    second = engine.measure(lambda: pipeline.rows_of(scores, given.v, out), seconds)
    products = 2 * executed_flops(problem) / (first.median + second.median)
    moved = 2 * problem.element_size * problem.score_elements * visited_share(problem) / softmax.median
    return Quality(
        product_rate=products,
        product_share_of_ceiling=products / ceilings.registers,
        softmax_rate=moved,
        softmax_share_of_copy=moved / ceilings.copy,
    )


def visited_share(problem: Problem) -> float:
    """The share of the scores that lies in tiles which the pipeline visits."""
    if not problem.is_causal:
        return 1.0
    tiles = problem.kv_len // baseline.STEP
    return (tiles + 1) / (2 * tiles)


def executed_flops(problem: Problem) -> float:
    """Of one product over the visited tiles."""
    return 2.0 * problem.score_elements * problem.head_dim * visited_share(problem)

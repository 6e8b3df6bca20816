"""The grid of attention problems over all axes, by seed, against float64: a sample in the suite, the whole by command.

python -m tests.operators.grid 2000 forward      # or backward; prints the worst row of each dtype
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from inductor_mps_attention import simulator
from inductor_mps_attention.operators import flash_backward, flash_forward
from tests.support import budgets, oracle
from tests.support.inputs import LAYOUTS, Shape, make

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SQUARE = tuple((width, width) for width in (64, 128, 80, 32, 8, 1, 20, 256))
HEAD_DIMS = (*SQUARE, (33, 65), (64, 32), (96, 136), (192, 100))
LENGTHS = (0, 1, 2, 7, 8, 31, 33, 45, 64, 70)
FEW_QUERIES, MANY_KEYS = (1, 1, 2, 5, 8), (256, 257, 300, 520)
"""Lengths whose keys are split over threadgroups."""
MANY_QUERIES = (512, 515, 600)
"""Lengths whose groups of heads are split over threadgroups in the backward."""
GROUPS = ((1, 1), (2, 2), (4, 2), (3, 1), (8, 1))
SHARED = ((4, 2), (3, 1), (6, 2))
WANTED = (
    (True, True, True),
    (True, False, False),
    (False, True, False),
    (False, False, True),
    (False, True, True),
)
"""Of dq, dk and dv."""


@dataclass(frozen=True)
class Case:
    """One attention. `mask_share`: the share of keys that the key mask lets through, None for no mask."""

    seed: int
    dtype: torch.dtype
    shape: Shape
    layout: str
    scale: float
    lower: int | None
    upper: int | None
    mask_share: float | None
    wanted: tuple[bool, bool, bool]


@dataclass(frozen=True)
class Text:
    """What a kernel's text depends on. `band`: bit 0 for a lower bound, bit 1 for an upper one."""

    dtype: torch.dtype
    head_dims: tuple[int, int]
    band: int
    masked: bool
    queries: str
    """"few", "many" of grouped heads, or "any"."""


def cases(count: int, seed: int, texts: int) -> list[Case]:
    """`count` problems that need about `texts` kernel texts: what text depends on is drawn less often than the rest."""
    chosen = random.Random(seed)
    compiled = [
        Text(
            dtype=chosen.choice(DTYPES),
            head_dims=chosen.choice(HEAD_DIMS),
            band=chosen.choice((0, 0, 1, 2, 3)),
            masked=chosen.random() < 0.4,
            queries=chosen.choice(("few", "any", "any", "any", "any", "many")),
        )
        for _ in range(texts)
    ]
    return [_case(chosen, number, compiled[number % texts]) for number in range(count)]


def _case(chosen: random.Random, number: int, text: Text) -> Case:
    queries = chosen.choice({"few": FEW_QUERIES, "many": MANY_QUERIES, "any": LENGTHS}[text.queries])
    keys = chosen.choice(MANY_KEYS if text.queries == "few" else LENGTHS)
    heads, kv_heads = chosen.choice(SHARED if text.queries == "many" else GROUPS)
    bound = chosen.choice((0, keys - queries, 5, -9))
    return Case(
        seed=number,
        dtype=text.dtype,
        shape=Shape(chosen.choice((1, 1, 2)), heads, kv_heads, queries, keys, *text.head_dims),
        layout=chosen.choice(LAYOUTS),
        # Larger scales are compared with eager elsewhere: 16-bit weights underflow, float32 scores round.
        scale=chosen.choice((1.0, 1.0, 0.0, -1.0, 1.5)) * text.head_dims[0] ** -0.5,
        lower=bound - 12 if text.band & 1 else None,
        upper=bound if text.band & 2 else None,
        mask_share=chosen.choice((0.0, 0.3, 0.8, 1.0)) if text.masked else None,
        wanted=chosen.choice(WANTED),
    )


@dataclass(frozen=True)
class Outcome:
    """The worst row of each result as a share of what is allowed, and what was beyond it, or empty."""

    worst: dict[str, float]
    fault: str = ""


def run(case: Case, *, backward: bool) -> Outcome:
    """One problem on the simulated device, whose fresh memory is NaN, against float64."""
    try:
        return Outcome(_worst_rows(case, backward))
    except AssertionError as error:
        return Outcome({}, str(error))


def _worst_rows(case: Case, backward: bool) -> dict[str, float]:
    tensors = make(case.shape, case.dtype, layout=case.layout, seed=case.seed)
    q, k, v, grad_out = tensors
    mask = None
    if case.mask_share is not None:
        generator = torch.Generator().manual_seed(case.seed)
        mask = (torch.rand(*k.shape[::2], generator=generator) < case.mask_share).to("mps")
    truth = oracle.attention(*tensors, scale=case.scale, lower=case.lower, upper=case.upper, key_mask=mask)
    with simulator.options(poison=True):
        out, logsumexp = flash_forward(q, k, v, mask, case.scale, case.lower, case.upper)
        worst = {
            "out": budgets.check_rows(
                "out", out, truth.out, budgets.forward(case.dtype, truth.largest_score), truth.out_least
            )
        }
        _check_logsumexp(logsumexp.cpu(), truth.logsumexp)
        if backward:
            rest = (mask, case.scale, case.lower, case.upper, list(case.wanted))
            grads = flash_backward(grad_out, q, k, v, out, logsumexp, *rest)
            for name, grad, wanted in zip(("dq", "dk", "dv"), grads, case.wanted, strict=True):
                if wanted:
                    expected, least = getattr(truth, name), getattr(truth, f"{name}_least")
                    worst[name] = budgets.check_rows(name, grad, expected, budgets.BACKWARD[case.dtype], least)
    return worst


def _check_logsumexp(got: Tensor, expected: Tensor) -> None:
    seen = torch.isfinite(expected)
    assert torch.equal(torch.isneginf(got), ~seen), "logsumexp of rows without a key"
    torch.testing.assert_close(got[seen].double(), expected[seen], rtol=2e-6, atol=5e-6)


def main(count: int, direction: str) -> None:
    worst: dict[tuple[torch.dtype, str], tuple[float, Case]] = {}
    faults = 0
    for number, case in enumerate(cases(count, seed=1, texts=max(count // 5, 1))):
        if number % 100 == 0:
            print(f"{number} of {count}", file=sys.stderr, flush=True)
        outcome = run(case, backward=direction == "backward")
        if outcome.fault:
            faults += 1
            print(f"{case}: {outcome.fault}", flush=True)
        for name, share in outcome.worst.items():
            if share >= worst.get((case.dtype, name), (-1.0, case))[0]:
                worst[case.dtype, name] = (share, case)
    for (dtype, name), (share, case) in sorted(worst.items(), key=str):
        print(f"{dtype} {name}: worst row {share:.2f} of what is allowed, {case}")
    if faults:
        raise SystemExit(f"{faults} of {count} {direction} problems beyond the budgets")
    print(f"{count} {direction} problems within the budgets")


if __name__ == "__main__":
    simulator.install()
    main(int(sys.argv[1]), sys.argv[2])

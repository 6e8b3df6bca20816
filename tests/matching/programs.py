"""Random programs that are one attention, and random faults that make another function of it.

A program is a composition of spellings, each chosen by a seed: layout, grouped heads, scales, products, band, softmax,
and what stands around the weights. What the matcher must find (scale, band, heads) is known by construction.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Step = Callable[..., Any]
BATCH, HEADS, DIM, VALUE_DIM = 2, 4, 8, 16


def causal(s: Tensor) -> Tensor:
    return torch.ones(s.shape[-2], s.shape[-1], dtype=torch.bool).tril()


def window(s: Tensor) -> Tensor:
    distance = torch.arange(s.shape[-1]) - torch.arange(s.shape[-2])[:, None]
    return (distance <= 0) & (distance > -4)


def symmetric(s: Tensor) -> Tensor:
    return (torch.arange(s.shape[-2])[:, None] - torch.arange(s.shape[-1])).abs() <= 3


BANDS: dict[str, tuple[Step | None, tuple[int | None, int | None]]] = {
    "full": (None, (None, None)),
    "causal": (causal, (None, 0)),
    "window": (window, (-3, 0)),
    "symmetric": (symmetric, (-3, 3)),
}
APPLIED: dict[str, Step] = {
    "masked_fill": lambda s, keep: s.masked_fill(~keep, -math.inf),
    "masked_fill_min": lambda s, keep: s.masked_fill(~keep, torch.finfo(s.dtype).min),
    "where": lambda s, keep: torch.where(keep, s, -math.inf),
    "added": lambda s, keep: s + torch.zeros_like(keep, dtype=s.dtype).masked_fill(~keep, -math.inf),
    "added_first": lambda s, keep: torch.zeros(keep.shape, dtype=s.dtype).masked_fill_(~keep, -math.inf) + s,
}
SCALES: dict[str, Step] = {
    "times": lambda x, c: x * c,
    "times_reversed": lambda x, c: c * x,
    "divided": lambda x, c: x / (1 / c),
    "mul": lambda x, c: torch.mul(x, c),
    "div_method": lambda x, c: x.div(1 / c),
}
SOFTMAXES: dict[str, Step] = {
    "method": lambda s: s.softmax(-1),
    "positive_dim": lambda s: s.softmax(s.dim() - 1),
    "function": lambda s: F.softmax(s, dim=-1),
    "torch": lambda s: torch.softmax(s, dim=-1),
    "to_float": lambda s: F.softmax(s, dim=-1, dtype=torch.float32).to(s.dtype),
    "log_softmax": lambda s: s.log_softmax(-1).exp(),
    "logsumexp": lambda s: (s - s.logsumexp(-1, keepdim=True)).exp(),
    "stable": lambda s: (lambda e: e / e.sum(-1, keepdim=True))((s - s.amax(-1, keepdim=True)).exp()),
    "shifted": lambda s: (s - s.amax(-1, keepdim=True).detach()).softmax(-1),
}
# Eager rounds every step of these in half precision; no kernel does, nor would anybody want it.
EXACT_ONLY = frozenset({"log_softmax", "logsumexp", "stable", "shifted"})
BETWEEN: dict[str, Step] = {
    "nothing": lambda w: w,
    "contiguous": lambda w: w.contiguous(),
    "dropout_off": lambda w: F.dropout(w, 0.3, training=False),
    "dropout_of_zero": lambda w: F.dropout(w, 0.0),
    "clone": lambda w: w.clone(),
    "round_trip": lambda w: w.mT.mT,
}
SCORES: dict[str, Step] = {
    "matmul": lambda q, k: q @ k.mT,
    "transpose": lambda q, k: torch.matmul(q, k.transpose(-1, -2)),
    "swapaxes": lambda q, k: q.matmul(k.swapaxes(-2, -1)),
    "einsum": lambda q, k: torch.einsum("...id,...jd->...ij", q, k),
    "keys_first": lambda q, k: (k @ q.mT).mT,
    "einsum_keys_first": lambda q, k: torch.einsum("...jx,...ix->...ij", k, q),
}
OUTPUTS: dict[str, Step] = {
    "matmul": lambda w, v: w @ v,
    "torch": lambda w, v: torch.matmul(w, v),
    "einsum": lambda w, v: torch.einsum("...ij,...jd->...id", w, v),
    "transposed": lambda w, v: (v.mT @ w.mT).mT,
}
REPEATS: dict[str, tuple[Step, int]] = {
    "none": (lambda t: t, HEADS),
    "interleave": (lambda t: t.repeat_interleave(2, dim=1), 2),
    "expand": (lambda t: t[:, :, None].expand(-1, -1, 2, -1, -1).reshape(t.shape[0], HEADS, t.shape[2], t.shape[3]), 2),
    "stack": (lambda t: torch.stack([t, t], 2).flatten(1, 2), 2),
    "repeat": (lambda t: t.unsqueeze(2).repeat(1, 1, 2, 1, 1).flatten(1, 2), 2),
    "tile": (lambda t: t.repeat(1, 2, 1, 1), 2),
}

LEVELS: dict[str, dict[str, Any]] = {
    "aten": {"aten": True},
    "static": {},
    "aten dynamic": {"aten": True, "dynamic": True},
    "dynamic": {"dynamic": True},
}
LEVEL_WEIGHTS = (12, 5, 2, 1)  # symbolic shapes take eight times as long to capture

FAULTS: dict[str, tuple[str, Step]] = {
    "softmax over queries": ("softmax", lambda s: s.softmax(-2)),
    "softmax over all": ("softmax", lambda s: s.flatten(-2).softmax(-1).view(s.shape)),
    "double softmax": ("softmax", lambda s: s.softmax(-1).softmax(-1)),
    "sigmoid": ("softmax", torch.sigmoid),
    "an epsilon in the sum": ("softmax", lambda s: (lambda e: e / (e.sum(-1, keepdim=True) + 0.1))(s.exp())),
    "softcap": ("before", lambda s: torch.tanh(s)),
    "clamped": ("before", lambda s: s.clamp(min=-0.5)),
    "a bias per key": ("before", lambda s: s + torch.linspace(0, 1, s.shape[-1], dtype=s.dtype)),
    "a scale per query": ("before", lambda s: s * torch.linspace(1, 2, s.shape[-2], dtype=s.dtype)[:, None]),
    "written": ("before", lambda s: s.clone().index_fill_(-1, torch.tensor([1]), 0.5)),
    "weights squared": ("after", lambda w: w * w),
    "weights masked": ("after", lambda w: w.tril()),
    "weights flipped": ("after", lambda w: w.flip(-1)),
    "weights renormalised": ("after", lambda w: w / w.sum(-2, keepdim=True)),
    "weights returned": ("leak", lambda out, w: (out, w)),
    "weights summed": ("leak", lambda out, w: out + w.sum()),
}


@dataclass
class Program:
    """A program, its inputs, and what must be found in it. fault: what makes it another function, or None."""

    seed: int
    function: Step
    inputs: tuple[Tensor, ...]
    choices: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    band: tuple[int | None, int | None] = (None, None)
    kv_heads: int | None = None
    fault: str | None = None
    dtype: torch.dtype = torch.float32
    grad: bool = True
    level: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.choices}, fault {self.fault}, {self.dtype}, {self.level}"


def program(seed: int) -> Program:
    """The program of a seed: always the same."""
    pick = random.Random(seed)
    dtype = pick.choice([torch.float32] * 4 + [torch.float16, torch.bfloat16])
    names = {
        "scores": pick.choice(list(SCORES)),
        "softmax": pick.choice([name for name in SOFTMAXES if dtype is torch.float32 or name not in EXACT_ONLY]),
        "between": pick.choice(list(BETWEEN)),
        "output": pick.choice(list(OUTPUTS)),
        "band": pick.choice(["full", *BANDS]),
        "applied": pick.choice(list(APPLIED)),
        "layout": pick.choice(["heads", "heads", "sequence", "flat", "five"]),
        "repeat": pick.choice(["none", "none", *REPEATS]),
        "scales": tuple(
            (pick.choice(["q", "k", "scores"]), pick.choice(list(SCALES))) for _ in range(pick.randrange(3))
        ),
    }
    fault = pick.choice(list(FAULTS)) if pick.random() < 0.25 else None
    if names["layout"] in ("flat", "five"):
        names["repeat"] = "none"
    numbers = [pick.choice([0.5, 0.25, 0.3, 1.5]) for _ in names["scales"]]
    queries = pick.choice([7, 12])
    keys = queries if names["band"] != "full" else pick.choice([7, 12, 15])
    on_scores = [number for (place, _), number in zip(names["scales"], numbers, strict=True) if place == "scores"]
    repeated, kv = REPEATS[names["repeat"]]
    # Keys that are scaled after they were repeated are other tensors than those that were given.
    scaled_keys = any(place == "k" for place, _ in names["scales"])
    kv_heads = HEADS if names["repeat"] == "tile" or scaled_keys else kv
    return Program(
        seed,
        _composed(names, numbers, repeated, fault),
        _inputs(names["layout"], queries, keys, kv, dtype, seed),
        names,
        math.prod(on_scores),
        BANDS[names["band"]][1],
        kv_heads if names["layout"] in ("heads", "sequence") else None,
        fault,
        dtype,
        pick.random() < 0.6,
        pick.choices(list(LEVELS.values()), LEVEL_WEIGHTS)[0],
    )


def _inputs(layout: str, queries: int, keys: int, kv: int, dtype: torch.dtype, seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)

    def tensor(heads: int, length: int, dim: int) -> Tensor:
        shape = {
            "heads": (BATCH, heads, length, dim),
            "sequence": (BATCH, length, heads, dim),
            "flat": (BATCH * heads, length, dim),
            "five": (BATCH, 3, heads, length, dim),
        }[layout]
        return torch.randn(shape, generator=generator).to(dtype)

    return tensor(HEADS, queries, DIM), tensor(kv, keys, DIM), tensor(kv, keys, VALUE_DIM)


def _composed(names: dict[str, Any], numbers: list[float], repeat: Step, fault: str | None) -> Step:
    keep, apply = BANDS[names["band"]][0], APPLIED[names["applied"]]
    scales = [(place, SCALES[name], number) for (place, name), number in zip(names["scales"], numbers, strict=True)]
    softmax, between = SOFTMAXES[names["softmax"]], BETWEEN[names["between"]]
    scores_of, output_of, layout = SCORES[names["scores"]], OUTPUTS[names["output"]], names["layout"]
    where, change = FAULTS[fault] if fault else ("", lambda x: x)
    softmax = change if where == "softmax" else softmax

    def scaled(x: Tensor, place: str) -> Tensor:
        for wanted, scale, number in scales:
            x = scale(x, number) if wanted == place else x
        return x

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Any:
        if layout == "sequence":
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        k, v = repeat(k), repeat(v)
        scores = scaled(scores_of(scaled(q, "q"), scaled(k, "k")), "scores")
        scores = change(scores) if where == "before" else scores
        if keep is not None:
            scores = apply(scores, keep(scores))
        weights = between(softmax(scores))
        weights = change(weights) if where == "after" else weights
        out = output_of(weights, v)
        out = out.transpose(1, 2) if layout == "sequence" else out
        return change(out, weights) if where == "leak" else out

    return attention

"""A corpus of ways in which attention is written in public PyTorch code, in our own words.

    from corpus import load
    for case in load():                 # load(core=True): without the stretch cases
        fn, args = case.build("cpu", torch.float32)

A Case says whether a fused *maskless, dropoutless* attention kernel (optionally causal) may replace the code.
`n`: how many attentions must be replaced (0 for should_match=False).
`scale`: what multiplies QK^T at the scores, as far as the scores alone show it (None: 1/sqrt(D) default of SDPA).
A mask that is a provable band (causal, sliding window) counts as maskless; one from a buffer or an input does not.
`tier`: "core" must be right; "stretch" are true matches that a first version may leave unmatched (never a trap).
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass
class Case:
    name: str
    build: Callable[..., tuple[Callable, tuple]]
    should_match: bool
    reason: str
    source: str = ""
    scale: Any = None
    causal: bool = False
    layout: str = (
        "bhsd"  # layout of q at the product that makes the scores: bhsd, bsd(3-D), bshd(einsum over seq-major)
    )
    kv_heads: Any = None  # if K/V are repeated for GQA: heads before the repeat
    n: int = 1
    tier: str = "core"
    grad_only: bool = False  # a trap only where gradients flow
    band: bool = False  # a band other than causal: a window, or bottom-right causal
    scale_on_q: bool = False  # the scale is no number when the graph is compiled
    train: bool = False  # build the module in training mode
    module: str = ""


_REG: list[Case] = []


def case(should_match: bool, reason: str = "", **kw):
    def deco(f):
        kw.setdefault("n", 1 if should_match else 0)
        _REG.append(Case(f.__name__, f, should_match, reason or (f.__doc__ or "").strip(), module=f.__module__, **kw))
        return f

    return deco


def load(core: bool | None = None) -> list[Case]:
    if not _REG:
        for m in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
            if m.name.startswith("c_"):
                importlib.import_module(f"{__name__}.{m.name}")
    names = [c.name for c in _REG]
    assert len(names) == len(set(names)), "duplicate case names"
    return [c for c in _REG if core is None or (c.tier == "core") == core]

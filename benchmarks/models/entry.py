"""One model of the table: how it is built and called. Knows nothing of compiling or of attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

BATCH, LENGTH, VOCABULARY = 2, 16, 60

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Entry:
    """build: implementation ("sdpa" or "eager") -> a module. inputs: length -> keyword arguments of its forward.

    sites: attentions of one forward. declined: the reason that all of the declined ones must have, and how many they
    are; None if all are fused. padded: the names of masks that say which tokens count. cache: is there `use_cache`?
    implementations: the ones that the library has for it. dynamic: may its lengths be symbolic? every_way: run it in
    all combinations, not in a few that differ most.
    """

    name: str
    library: str
    build: Callable[[str], nn.Module]
    inputs: Callable[[int], Inputs]
    sites: int
    declined: tuple[str, int] | None = None
    padded: tuple[str, ...] = ()
    cache: bool = False
    implementations: tuple[str, ...] = ("sdpa", "eager")
    dynamic: bool = True
    every_way: bool = True


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def tokens(length: int) -> Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, length), generator=generator())


def picture(size: int, channels: int = 3) -> Tensor:
    return torch.randn(BATCH, channels, size, size, generator=generator())


def features(length: int, width: int) -> Tensor:
    return torch.randn(BATCH, length, width, generator=generator())


def padding(length: int, left: bool = False) -> Tensor:
    """1 where a token counts: the second sequence is shorter. (batch, length) of int64, as tokenizers give it."""
    keep = torch.ones(BATCH, length, dtype=torch.int64)
    shorter = length - max(1, length // 3)
    if left:
        keep[1, : length - shorter] = 0
    else:
        keep[1, shorter:] = 0
    return keep

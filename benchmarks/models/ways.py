"""How a model is run, and what came of it: data that can be kept as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .entry import LENGTH, Entry


@dataclass(frozen=True)
class Way:
    """lengths: of each call; the first one compiles. cache: `use_cache`, None where there is no such thing."""

    implementation: str
    train: bool = False
    dynamic: bool = False
    cache: bool | None = None
    padded: bool = False
    key_padding: bool = False

    def __str__(self) -> str:
        words = ["train" if self.train else "eval", "dynamic" if self.dynamic else "static"]
        words += [] if self.cache is None else [f"use_cache={self.cache}"]
        words += ["attention_mask"] if self.padded else []
        return " ".join([*words, "key_padding"] if self.key_padding else words)

    @property
    def lengths(self) -> tuple[int, ...]:
        return (LENGTH, LENGTH + 5) if self.dynamic else (LENGTH,)


@dataclass(frozen=True)
class Outcome:
    """fused of sites: attentions of the one compilation. declined: the first rejection of each of the others, as
    (reason, message). error: the worst of all calls. graphs: how often was compiled.
    """

    way: Way
    fused: int
    sites: int
    declined: tuple[tuple[str, str], ...]
    error: float
    graphs: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Outcome:
        declined = tuple((reason, message) for reason, message in record["declined"])
        return cls(**record | {"way": Way(**record["way"]), "declined": declined})


def ways(entry: Entry) -> Iterator[Way]:
    """Eager and SDPA, eval and train, static and symbolic lengths, with and without cache, mask and key padding."""
    for implementation in entry.implementations:
        for train, dynamic, cache in _modes(entry):
            yield Way(implementation, train, dynamic, cache)
            if entry.padded:
                yield Way(implementation, train, dynamic, cache, padded=True, key_padding=True)
        if entry.padded:
            yield Way(implementation, cache=False if entry.cache else None, padded=True)


def _modes(entry: Entry) -> Iterator[tuple[bool, bool, bool | None]]:
    """train, dynamic, use_cache; training with a cache is not a thing that people do."""
    if not entry.every_way:
        yield False, entry.dynamic, True if entry.cache else None
        yield True, False, False if entry.cache else None
        return
    for train in (False, True):
        for cache in (None,) if not entry.cache else (False,) if train else (True, False):
            for dynamic in (False, True) if entry.dynamic else (False,):
                yield train, dynamic, cache

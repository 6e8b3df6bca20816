"""One attention to measure: sizes, and the operations and bytes it takes at least. Knows no engine and no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """softmax(scale * q k^T) v over the keys j of query i with lower <= j - i <= upper (None: unbounded).

    q (batch, heads, q_len, head_dim), k and v (batch, kv_heads, kv_len, head_dim), scale 1 / sqrt(head_dim).
    """

    dtype: str
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    lower: int | None = None
    upper: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Problem:
        """From a suite's values. `length` stands for both lengths, kv_heads and heads default to each other;
        `causal` is upper = kv_len - q_len, `window` w lower = 1 - w beside it.
        """
        known = dict(values)
        length = known.pop("length", None)
        q_len, kv_len = known.pop("q_len", length), known.pop("kv_len", length)
        heads = known.pop("heads")
        window = known.pop("window", None)
        bounded = known.pop("causal", False) or window is not None
        last = kv_len - q_len
        return cls(
            heads=heads,
            kv_heads=known.pop("kv_heads", heads),
            q_len=q_len,
            kv_len=kv_len,
            lower=last + 1 - window if window is not None else None,
            upper=last if bounded else None,
            **known,
        )

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.head_dim)

    @property
    def is_causal(self) -> bool:
        """Bounded above alone: what stock attention calls causal."""
        return self.upper is not None and self.lower is None

    @property
    def kept_share(self) -> float:
        """The share of scores within the band, counted row by row."""
        if self.lower is None and self.upper is None:
            return 1.0
        kept = sum(stop - start for start, stop in self._rows())
        return kept / (self.q_len * self.kv_len)

    def _rows(self) -> Iterator[tuple[int, int]]:
        for row in range(self.q_len):
            start = 0 if self.lower is None else min(max(row + self.lower, 0), self.kv_len)
            stop = self.kv_len if self.upper is None else min(max(row + self.upper + 1, 0), self.kv_len)
            yield start, max(start, stop)

    def flops(self, products: int) -> float:
        """Floating-point operations of so many products of q_len x kv_len x head_dim, within the band."""
        scores = self.batch * self.heads * self.q_len * self.kv_len * self.kept_share
        return 2.0 * products * scores * self.head_dim

    @property
    def score_elements(self) -> int:
        return self.batch * self.heads * self.q_len * self.kv_len

    @property
    def element_size(self) -> int:
        return 4 if self.dtype == "float32" else 2

    def label(self) -> str:
        """For people: f16 B1 H8/2 S4096 D64 causal."""
        short = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[self.dtype]
        heads = f"H{self.heads}" if self.heads == self.kv_heads else f"H{self.heads}/{self.kv_heads}"
        lengths = f"S{self.q_len}" if self.q_len == self.kv_len else f"S{self.q_len}x{self.kv_len}"
        band = "full"
        if self.is_causal:
            band = "causal"
        elif self.lower is not None or self.upper is not None:
            band = f"[{self.lower}, {self.upper}]"
        return f"{short} B{self.batch} {heads} {lengths} D{self.head_dim} {band}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

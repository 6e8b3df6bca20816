"""One attention that is measured: its sizes, and its family, which shares kernels. Knows no torch."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from inductor_mps_attention.codegen import Problem, Sizes

_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
_REACH = 1.0
"""A measurement speaks for sizes up to twice its own and down to half of them: so far apart in log2."""


@dataclass(frozen=True)
class Family:
    """Problems that one kernel text serves: sizes, strides and bounds are run-time numbers."""

    dtype: str
    qk_head_dim: int
    v_head_dim: int
    has_lower: bool
    has_upper: bool


@dataclass(frozen=True)
class Shape:
    """softmax(scale * q k^T) v over the band lower <= j - i <= upper, None being unbounded.

    q (batch, heads, q_len, qk_head_dim), k (batch, kv_heads, kv_len, qk_head_dim), v (.., kv_len, v_head_dim).
    """

    dtype: str
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    qk_head_dim: int
    v_head_dim: int
    lower: int | None = None
    upper: int | None = None

    def __post_init__(self) -> None:
        sizes = (self.batch, self.heads, self.kv_heads, self.q_len, self.kv_len, self.qk_head_dim, self.v_head_dim)
        if self.dtype not in _DTYPES.values():
            raise ValueError(f"dtype {self.dtype}; kernels take {', '.join(_DTYPES.values())}")
        if min(sizes) < 1 or self.heads % self.kv_heads:
            raise ValueError(f"sizes must be 1 or more and heads a multiple of kv_heads, got {self.label}")

    @classmethod
    def parse(cls, text: str) -> Shape:
        """From words as `label` has them: `f16 B1 H8/2 S1024 D64 causal`. ValueError, with the word, for others."""
        values: dict[str, Any] = {"batch": 1}
        band = ""
        for word in text.split():
            numbers = re.fullmatch(r"([BHSD])(\d+)(?:[/x](\d+))?", word)
            if word in _DTYPES or word in _DTYPES.values():
                values["dtype"] = _DTYPES.get(word, word)
            elif re.fullmatch(r"full|causal|window=\d+", word):
                band = word
            elif numbers is not None:
                values |= _sizes(numbers[1], int(numbers[2]), int(numbers[3] or numbers[2]))
            else:
                raise ValueError(f"cannot read {word!r} in {text!r}; a shape is as `f16 B1 H8/2 S1024 D64 causal`")
        missing = {"dtype": "f16", "heads": "H8", "q_len": "S1024", "qk_head_dim": "D64"}.items() - values.items()
        for name, example in missing:
            if name not in values:
                raise ValueError(f"{text!r} lacks {name}; write it as {example}")
        return cls(**(values | _band(band, values["kv_len"] - values["q_len"])))

    @property
    def family(self) -> Family:
        return Family(self.dtype, self.qk_head_dim, self.v_head_dim, self.lower is not None, self.upper is not None)

    @property
    def problem(self) -> Problem:
        """The question to the planner, of tensors whose rows are aligned."""
        return Problem(**asdict(self.family), aligned=True)

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.batch, self.heads, self.kv_heads, self.q_len, self.kv_len)

    @property
    def label(self) -> str:
        """For people, and for `parse` unless the band is no window."""
        short = next((short for short, name in _DTYPES.items() if name == self.dtype), self.dtype)
        heads = f"H{self.heads}" if self.heads == self.kv_heads else f"H{self.heads}/{self.kv_heads}"
        lengths = f"S{self.q_len}" if self.q_len == self.kv_len else f"S{self.q_len}x{self.kv_len}"
        same = self.qk_head_dim == self.v_head_dim
        dims = f"D{self.qk_head_dim}" if same else f"D{self.qk_head_dim}x{self.v_head_dim}"
        return f"{short} B{self.batch} {heads} {lengths} {dims} {self._band_label()}"

    def _band_label(self) -> str:
        if self.lower is None and self.upper is None:
            return "full"
        last = self.kv_len - self.q_len
        if self.lower is None:
            return "causal" if self.upper == last else f"upper={self.upper}"
        return f"window={last + 1 - self.lower}" if self.upper == last else f"[{self.lower}, {self.upper}]"

    def distance(self, other: Shape) -> float | None:
        """How far this measurement is from another shape, in log2 of sizes; None where it says nothing of it."""
        if self.family != other.family:
            return None
        pairs = [
            (self.batch * self.heads, other.batch * other.heads),
            (self.q_len, other.q_len),
            (self.kv_len, other.kv_len),
        ]
        if self.lower is not None and other.lower is not None and self.upper is not None and other.upper is not None:
            pairs.append((self.upper - self.lower + 1, other.upper - other.lower + 1))
        parts = [abs(math.log2(max(one, 1) / max(two, 1))) for one, two in pairs]
        return sum(parts) if max(parts) <= _REACH else None


def _sizes(letter: str, first: int, second: int) -> dict[str, int]:
    if letter == "B":
        return {"batch": first}
    first_name, second_name = {
        "H": ("heads", "kv_heads"),
        "S": ("q_len", "kv_len"),
        "D": ("qk_head_dim", "v_head_dim"),
    }[letter]
    return {first_name: first, second_name: second}


def _band(word: str, last: int) -> dict[str, int]:
    """Causal and windows end at the last key for the last query."""
    if word in ("", "full"):
        return {}
    window = word.removeprefix("window=")
    return {"upper": last} | ({"lower": last + 1 - int(window)} if window != word else {})

"""The question put to the planner: one attention as far as kernel text depends on it.

Lengths, strides, scale and the bounds of the band are run-time values, so they are not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """What a kernel computes. Backward is three launches: delta first, then dq and dkv in either order; a fourth adds
    up the parts of a dkv whose groups of heads are split. Decode, the forward of few queries, is two: parts over the
    keys, then their merge."""

    FORWARD = "forward"
    BACKWARD_DELTA = "backward_delta"
    BACKWARD_DQ = "backward_dq"
    BACKWARD_DKV = "backward_dkv"
    BACKWARD_SUM = "backward_sum"
    DECODE = "decode"
    DECODE_MERGE = "decode_merge"


@dataclass(frozen=True)
class DType:
    """An element type: its size in bytes, its Metal name and the short form that kernel names use."""

    name: str
    metal: str
    size: int
    short: str


FLOAT32 = DType("float32", "float", 4, "f32")
FLOAT16 = DType("float16", "half", 2, "f16")
BFLOAT16 = DType("bfloat16", "bfloat", 2, "bf16")

DTYPES = {dtype.name: dtype for dtype in (FLOAT32, FLOAT16, BFLOAT16)}
"""Element types that the kernels have, by name."""


@dataclass(frozen=True)
class Split:
    """How DECODE divides the forward of few queries. Chosen from hints; every choice is right for all sizes."""

    keys: int
    """Keys of one threadgroup: the keys are split into ceil(kv_len / keys) parts, which are merged."""
    row_fragments: int
    """8-row fragments of a threadgroup. Its rows are those of all query heads that share a key head."""


@dataclass(frozen=True)
class Problem:
    """softmax(scale * q k^T) v over the band `lower <= j - i <= upper` of key j and query i."""

    dtype: str
    """"float32", "float16" or "bfloat16": of q, k, v, the output and their gradients."""
    qk_head_dim: int
    v_head_dim: int
    has_lower: bool = False
    """Whether the band is bounded below (a sliding window); the bound itself is a run-time integer."""
    has_upper: bool = False
    """Whether the band is bounded above (causal); the bound itself is a run-time integer."""
    aligned: bool = False
    """Whether base addresses and outer strides of `vector_loaded(role)` are multiples of 16 bytes: vector loads."""
    key_mask: bool = False
    """Whether keys are masked by a boolean tensor of (batch, keys); True is a key that is seen."""
    split: Split | None = None
    """The forward's keys in parts, by DECODE and DECODE_MERGE; None is one kernel, FORWARD."""
    group_heads: int | None = None
    """Query heads that a threadgroup of BACKWARD_DKV goes through, parts that BACKWARD_SUM adds up; None is all that
    share a key head. Chosen from hints; every choice is right for all sizes."""

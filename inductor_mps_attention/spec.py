"""What one attention is: shapes, dtype, scale and band, with torch's dtypes and sizes but without graph nodes.

The value goes from the matcher to the guards, the planner and the report; nothing below changes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

Size = int | torch.SymInt


@dataclass(frozen=True)
class Band:
    """Key j is seen from query i iff `lower <= j - i <= upper`; None is unbounded.

    (None, 0) is SDPA's `is_causal`, (None, Sk - Sq) bottom-right causal, (1 - w, 0) a causal window of w keys.
    """

    lower: Size | None = None
    upper: Size | None = None

    def __str__(self) -> str:
        if self.lower is None and self.upper is None:
            return "full"
        if self.lower is None and isinstance(self.upper, int) and self.upper == 0:
            return "causal"
        return f"{'-inf' if self.lower is None else self.lower} <= j-i <= {'inf' if self.upper is None else self.upper}"


FULL = Band()
CAUSAL = Band(None, 0)


@dataclass(frozen=True)
class AttentionSpec:
    """out[b, h, i, :] = sum_j softmax_j(scale * q[b, h, i, :] . k[b, h // g, j, :]) v[b, h // g, j, :], j in the band.

    g = heads / kv_heads. key_mask: only over the keys that a boolean tensor (batch, keys) shows. Sizes may be
    symbolic; head dims are numbers, since kernels are made for them.
    """

    batch: Size
    heads: Size
    kv_heads: Size
    q_len: Size
    kv_len: Size
    qk_head_dim: int
    v_head_dim: int
    dtype: torch.dtype
    device: torch.device
    scale: float
    band: Band = FULL
    key_mask: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values; symbolic sizes as text."""

        def plain(size: Size | None) -> int | str | None:
            return size if size is None or isinstance(size, int) else str(size)

        return {
            "batch": plain(self.batch),
            "heads": plain(self.heads),
            "kv_heads": plain(self.kv_heads),
            "q_len": plain(self.q_len),
            "kv_len": plain(self.kv_len),
            "qk_head_dim": self.qk_head_dim,
            "v_head_dim": self.v_head_dim,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": self.device.type,
            "scale": self.scale,
            "band": [plain(self.band.lower), plain(self.band.upper)],
            "key_mask": self.key_mask,
        }

"""Models of pictures of transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .entry import Entry, Inputs, picture
from .from_config import NO_DROPOUT, SIZES, builder

_SIZES = {**SIZES, "image_size": 32, "patch_size": 8}
_SAM = {
    **SIZES, "image_size": 32, "patch_size": 8, "window_size": 2, "global_attn_indexes": [1], "output_channels": 8,
    "mlp_dim": 32,
}  # fmt: skip


def _pixels(_: int) -> Inputs:
    return {"pixel_values": picture(32)}


def _of_pictures(name: str, family: str, more: dict[str, Any], sites: int = 2, **facts: Any) -> Entry:
    build = builder(f"{family}Model", f"{family}Config", {**_SIZES, **more})
    return Entry(name, "transformers", build, _pixels, sites, dynamic=False, **facts)


_MAIN = (
    _of_pictures("ViT", "ViT", NO_DROPOUT),
    _of_pictures("DINOv2", "Dinov2", NO_DROPOUT),
    _of_pictures("CLIP vision", "CLIPVision", {}),
    _of_pictures("SigLIP vision", "SiglipVision", {}, 3),
)  # fmt: skip
_FURTHER = (
    _of_pictures("BEiT", "Beit", {**NO_DROPOUT, "use_relative_position_bias": True}, declined=("MASK", 2)),
    _of_pictures("SAM vision", "SamVision", _SAM, declined=("MASK", 2), implementations=("sdpa",)),
)  # fmt: skip
ENTRIES = (*_MAIN, *(replace(entry, every_way=False) for entry in _FURTHER))

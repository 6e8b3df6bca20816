"""Classifiers of timm."""

from __future__ import annotations

import functools
from typing import Any

import timm
import torch
from torch import nn

from .entry import Entry, picture


def _timm(kind: str, more: dict[str, Any], implementation: str) -> nn.Module:
    timm.layers.set_fused_attn(implementation == "sdpa")
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(kind, img_size=32, num_classes=0, **more)
    return model


def _timm_entry(name: str, kind: str, more: dict[str, Any], sites: int, **facts: Any) -> Entry:
    build = functools.partial(_timm, kind, more)
    return Entry(name, "timm", build, lambda _: {"x": picture(32)}, sites, dynamic=False, **facts)


_SMALL = {"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
_WINDOWS = {
    "patch_size": 2,
    "window_size": 4,
    "embed_dim": 16,
    "depths": (2, 2),
    "num_heads": (2, 4),
    "drop_path_rate": 0.0,
}
ENTRIES = (
    _timm_entry("ViT", "vit_tiny_patch16_224", _SMALL, 2),
    _timm_entry("DeiT", "deit_tiny_patch16_224", _SMALL, 2),
    _timm_entry("Swin", "swin_tiny_patch4_window7_224", _WINDOWS, 4, declined=("MASK", 4)),
)

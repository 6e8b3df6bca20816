"""Which libraries of models are here. To be imported before transformers, which imports torchvision if it is there."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version

import torch

NAMES = ("transformers", "diffusers", "timm")


def installed(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


def versions(libraries: set[str]) -> dict[str, str]:
    """Of torch and of these, for the head of a table."""
    return {name: version(name) for name in ("torch", *sorted(libraries))}


def declare_operators_of_torchvision() -> None:
    """timm imports torchvision, and that fails where its compiled part was made for another build of torch.

    Only box suppression is missed at import, and no model here calls it.
    """
    if not installed("torchvision"):
        return
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declared.append(library)


_declared: list[torch.library.Library] = []
"""An operator lives as long as the library object that declared it."""

"""Puts the engine in the place of torch.mps.compile_shader for a block of code: what launches Metal kernels then
launches them on CUDA tensors.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import torch

from .compiler import Options
from .library import compile_shader


@contextlib.contextmanager
def installed(options: Options | None = None) -> Iterator[None]:
    """A block in which torch.mps.compile_shader compiles for the NVIDIA GPU. Not for several threads at once."""
    before = torch.mps.compile_shader
    torch.mps.compile_shader = functools.partial(compile_shader, options=options)
    try:
        yield
    finally:
        torch.mps.compile_shader = before

"""KernelSource -> callable Metal kernel, compiled once a text in each process, also when threads race for it."""

from __future__ import annotations

import threading
from typing import Any

import torch

from inductor_mps_attention.codegen import KernelSource

from ..errors import KernelCompileError

_kernels: dict[str, Any] = {}
_locks: dict[str, threading.Lock] = {}
_guard = threading.Lock()


def kernel(source: KernelSource) -> Any:
    """The compiled kernel of the text, by its digest. `torch.mps.compile_shader` keeps no cache of its own, and
    each attribute access on its library makes a new kernel object: the object is kept, not the library.

    Raises KernelCompileError with the numbered text; nothing is kept then, so the next call tries again.
    """
    found = _kernels.get(source.digest)
    if found is not None:
        return found
    with _guard:
        lock = _locks.setdefault(source.digest, threading.Lock())
    with lock:
        found = _kernels.get(source.digest)
        if found is None:
            found = _kernels[source.digest] = _compile(source)
        return found


def _compile(source: KernelSource) -> Any:
    try:
        return getattr(torch.mps.compile_shader(source.text), source.entry)
    except Exception as error:  # RuntimeError, SyntaxError, AttributeError: it depends on torch's version
        raise KernelCompileError(source.entry, str(error), source.text) from error


def clear() -> None:
    """Forget all compiled kernels; the next launch of each compiles again."""
    with _guard:
        _kernels.clear()
        _locks.clear()

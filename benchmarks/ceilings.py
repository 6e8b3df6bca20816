"""What this engine can do at most, measured in the same run: rates of 8x8x8 products, and of a copy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from . import baseline
from .engines.engine import Engine

_SIMDGROUPS = 4
_PRODUCT_FLOPS = 2 * 8 * 8 * 8
_PRODUCTS_A_STEP = 16


@dataclass(frozen=True)
class Ceilings:
    """FLOP a second of products with operands from registers, and with the right one from threadgroup memory, straight
    and transposed; bytes a second, read and written, of a copy.
    """

    dtype: str
    registers: float
    threadgroup_straight: float
    threadgroup_transposed: float
    copy: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(engine: Engine, dtype: str, *, tiny: bool = False) -> Ceilings:
    """Takes about a second on a GPU. `tiny` is for engines whose times have no meaning."""
    library = engine.compile_shader(baseline.text("ceilings", element=baseline.element(dtype)))
    groups, steps, copied = (2, 4, 1 << 12) if tiny else (132 * 8, 2000, 1 << 28)
    x = torch.randn(64 * 72, device=engine.device).to(getattr(torch, dtype))
    out = torch.zeros(1, device=engine.device)
    threads = groups * _SIMDGROUPS * 32
    flops = groups * _SIMDGROUPS * steps * _PRODUCTS_A_STEP * _PRODUCT_FLOPS

    def rate(name: str) -> float:
        kernel = getattr(library, name)
        call = lambda: kernel(x, out, steps, threads=threads, group_size=_SIMDGROUPS * 32)  # noqa: E731
        return flops / engine.measure(call, 0.2).median

    return Ceilings(
        dtype,
        registers=rate("products_from_registers"),
        threadgroup_straight=rate("products_from_threadgroup_straight"),
        threadgroup_transposed=rate("products_from_threadgroup_transposed"),
        copy=_copy_rate(engine, library, copied),
    )


def _copy_rate(engine: Engine, library: Any, size: int) -> float:
    source, target = (torch.zeros(size // 4, device=engine.device) for _ in range(2))
    kernel = library.copied
    call = lambda: kernel(source, target, threads=size // 16, group_size=256)  # noqa: E731
    return 2 * size / engine.measure(call, 0.2).median

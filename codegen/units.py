"""How a row is cut into units that lanes read by neighbouring elements, for kernels that make fragments in registers.

Row length in, units out; templates/parts/units.metal.jinja says which lane has which element.
"""

from __future__ import annotations

from dataclasses import dataclass

from .footprint import FRAGMENT, VECTOR_BYTES
from .problem import DType


@dataclass(frozen=True)
class Unit:
    """`fragments` fragments of a row from fragment `first` on; of one fragment cut by the row's end, `left` columns."""

    first: int
    fragments: int
    vector: bool
    """Whether the rows are aligned, so that a lane's elements are one load."""
    left: int = 0

    def read(self, count: int) -> str:
        """The function that reads `count` neighbouring elements."""
        return f"{'read' if self.vector and count > 1 else 'gather'}_{count}"


def key_units(width: int, dtype: DType, *, vector: bool) -> tuple[Unit, ...]:
    """Of a row of q or k: a lane reads one element a fragment."""
    return _units(width, VECTOR_BYTES // dtype.size, vector)


def value_units(width: int, dtype: DType, *, vector: bool) -> tuple[Unit, ...]:
    """Of a row of v: a lane reads two elements a fragment."""
    return _units(width, VECTOR_BYTES // dtype.size // 2, vector)


def _units(width: int, largest: int, vector: bool) -> tuple[Unit, ...]:
    units, first, size = [], 0, largest
    while size:
        while (first + size) * FRAGMENT <= width:
            units.append(Unit(first, size, vector))
            first += size
        size //= 2
    if width % FRAGMENT:
        units.append(Unit(first, 1, vector=False, left=width % FRAGMENT))
    return tuple(units)


def reads(keys: tuple[Unit, ...], values: tuple[Unit, ...]) -> tuple[tuple[int, bool], ...]:
    """(count, vector) of every reading function that these units call."""
    counts = {(unit.fragments, unit.vector and unit.fragments > 1) for unit in keys}
    counts |= {(1, False) if unit.left else (2 * unit.fragments, unit.vector) for unit in values}
    return tuple(sorted(counts))

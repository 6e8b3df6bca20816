"""How a kernel is cut up: the numbers that a row of the plan table chooses. Data only."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_SHORT = re.compile(r"s(\d+)r(\d+)t(\d+)(?:k(\d+))?(?:x(\d+))?(?:j(\d+))?([pbdouq]*)")
_MARKS = (
    ("p", "prefetch"),
    ("b", "double_buffered"),
    ("d", "direct"),
    ("o", "once"),
    ("u", "unrolled"),
    ("q", "reread"),
)


@dataclass(frozen=True)
class Tiling:
    """How one threadgroup is cut up: it owns `simdgroups * row_fragments * 8` rows."""

    simdgroups: int
    row_fragments: int
    """8-row fragments that one simdgroup owns; two halve the threadgroup memory reads of a product."""
    tile: int
    """Rows of the streamed side that are staged in threadgroup memory at a time."""
    sharing: int = 1
    """Simdgroups that share a row set, each with a part of the work: 1, 2, or 4 in the backward."""
    prefetch: bool = False
    """Whether the next tile is read into registers while this one is computed with."""
    double_buffered: bool = False
    """Whether the tiles have two places each, which saves one of the two barriers a tile; implies `prefetch`."""
    direct: bool = False
    """Whether fragments come straight from device memory, without staging, threadgroup memory or barriers."""
    once: bool = False
    """Backward: whether each staged fragment is read once and kept, and weights are transposed by shuffles instead."""
    blocks: int = 1
    """Backward: blocks of 8 streamed rows whose products are made together; simdgroups that share rows take a tile."""
    unrolled: bool = False
    """Backward: whether the loop over the blocks of a tile is unrolled. Instruction caches of M1 and M2 have 12 KB."""
    reread: bool = False
    """Decode: whether queries are read again for each tile, by fragments, since the registers hold no rows of them."""
    part: int = 0
    """Decode: keys of one threadgroup, whose simdgroups share the rows and take turns at the tiles."""

    @property
    def short(self) -> str:
        """The tiling as kernel names spell it."""
        numbers = f"s{self.simdgroups}r{self.row_fragments}t{self.tile}"
        sharing = f"x{self.sharing}" if self.sharing > 1 else ""
        blocks = f"j{self.blocks}" if self.blocks > 1 else ""
        part = f"k{self.part}" if self.part else ""
        return numbers + part + sharing + blocks + "".join(mark for mark, name in _MARKS if getattr(self, name))

    @classmethod
    def of(cls, short: str) -> Tiling:
        """The reverse of `short`. ValueError for another text."""
        found = _SHORT.fullmatch(short)
        if found is None:
            raise ValueError(f"{short!r} is no tiling; one is spelled as s8r2t64x2j4p")
        numbers = [int(number or least) for number, least in zip(found.groups(""), (0, 0, 0, 0, 1, 1), strict=False)]
        simdgroups, row_fragments, tile, part, sharing, blocks = numbers
        tiling = cls(simdgroups, row_fragments, tile, sharing=sharing, blocks=blocks, part=part)
        return replace(tiling, **{name: mark in found.groups()[-1] for mark, name in _MARKS})

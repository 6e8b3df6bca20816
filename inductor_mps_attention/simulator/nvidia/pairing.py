"""A pass over PTX that joins the half-empty 8x8x8 products which the shim emits. It shows how far the engine's rate
depends on the hardware's product being larger than Apple's; results differ in the order of sums alone.

Rows: two m16n8k8 products with the same right operand, whose lower rows are empty, become one full m16n8k8.
Depth: two that follow each other through their sums become one m16n8k16.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

_PRODUCT = re.compile(
    r"\s*mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.(f16\.f16|bf16\.bf16)\.f32 "
    r"\{([^}]*)\},\s*\{([^}]*)\},\s*\{([^}]*)\},\s*\{([^}]*)\};"
)
_REGISTER = re.compile(r"%[a-z]+\d+")
_BLOCK_EDGE = re.compile(r"\s*(\$?\w+:|@|bra|ret|\.|\})")


@dataclass
class _Product:
    """One mma: its line, its types, and the registers of sums, left and right operand, and addends."""

    line: int
    types: str
    d: list[str]
    a: list[str]
    b: list[str]
    c: list[str]
    is_half_empty: bool

    def text(self) -> str:
        depth = 8 * len(self.a) // 2
        operands = ", ".join("{" + ", ".join(group) + "}" for group in (self.d, self.a, self.b, self.c))
        return f"\tmma.sync.aligned.m16n8k{depth}.row.col.f32.{self.types}.f32 {operands};"


@dataclass(frozen=True)
class Paired:
    """The new PTX, and how many products there were, were joined by rows and by depth."""

    text: str
    products: int
    joined_rows: int
    joined_depth: int


def pair_products(ptx: str) -> Paired:
    """Joins what can be joined within a basic block."""
    lines = ptx.split("\n")
    products = _products(lines)
    blocks, mentions = _blocks(lines), _mentions(lines)
    by_rows = _join_rows(products, blocks, mentions)
    by_depth = _join_depth([p for p in products if p.line not in by_rows], blocks, mentions)
    written = {product.line: product.text() for product in products}
    dropped = by_rows | by_depth
    kept = [written.get(number, line) for number, line in enumerate(lines) if number not in dropped]
    return Paired("\n".join(kept), len(products), len(by_rows), len(by_depth))


def _products(lines: list[str]) -> list[_Product]:
    zeros = {found.group(1) for line in lines if (found := re.match(r"\s*mov\.(?:u|b)32\s+(%r\d+), 0;", line))}
    products = []
    for number, line in enumerate(lines):
        found = _PRODUCT.match(line)
        if found:
            d, a, b, c = ([register.strip() for register in found.group(i).split(",")] for i in (2, 3, 4, 5))
            products.append(_Product(number, found.group(1), d, a, b, c, a[1] in zeros))
    return products


def _blocks(lines: list[str]) -> list[int]:
    """The basic block of each line. Line information (.loc) ends none."""
    block, blocks = 0, []
    for line in lines:
        if _BLOCK_EDGE.match(line) and not line.strip().startswith(".loc"):
            block += 1
        blocks.append(block)
    return blocks


def _mentions(lines: list[str]) -> dict[str, list[int]]:
    mentions: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        for register in _REGISTER.findall(line):
            mentions[register].append(number)
    return mentions


def _join_rows(products: list[_Product], blocks: list[int], mentions: dict[str, list[int]]) -> set[int]:
    """The first of a pair moves down to the second, so nobody between them may mention its sums."""
    waiting: dict[tuple[int, str, str], _Product] = {}
    dropped: set[int] = set()
    for product in products:
        if not product.is_half_empty:
            continue
        key = (blocks[product.line], product.b[0], product.types)
        first = waiting.pop(key, None)
        if first is None or _is_used_between(first, product, mentions) or set(first.d[:2]) & set(product.c[:2]):
            waiting[key] = product
            continue
        product.d = first.d[:2] + product.d[:2]
        product.a = [first.a[0], product.a[0]]
        product.c = first.c[:2] + product.c[:2]
        product.is_half_empty = False
        dropped.add(first.line)
    return dropped


def _is_used_between(first: _Product, second: _Product, mentions: dict[str, list[int]]) -> bool:
    return any(first.line < line < second.line for register in first.d[:2] for line in mentions[register])


def _join_depth(products: list[_Product], blocks: list[int], mentions: dict[str, list[int]]) -> set[int]:
    """The sums of the first go into the second and nowhere else."""
    makers = {product.d[0]: product for product in products}
    dropped: set[int] = set()
    for product in products:
        first = makers.get(product.c[0])
        if first is None or first.line >= product.line or blocks[first.line] != blocks[product.line]:
            continue
        if len(first.a) == 4 or len(product.a) == 4 or first.is_half_empty != product.is_half_empty:
            continue
        sums = first.d[:2] if product.is_half_empty else first.d
        if sums != product.c[: len(sums)] or any(len(set(mentions[register])) != 2 for register in sums):
            continue
        product.a, product.b, product.c = first.a + product.a, first.b + product.b, first.c
        dropped.add(first.line)
    return dropped

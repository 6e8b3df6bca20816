"""What the walks find out about one attention before anything is proved: operands, scale, masks, and the nodes that
would vanish.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torch.fx import Node

from .axes import Operand
from .findings import Findings
from .nodes import Size
from .site import SiteKind

MaskMode = Literal["add", "masked_fill", "keep"]


@dataclass(frozen=True)
class Factor:
    """One scale of the scores: `scores * operand`, or `scores / operand`.

    A number, a symbolic number or a one-element tensor.
    """

    operand: Any
    divides: bool
    node: Node


@dataclass(frozen=True)
class MaskTerm:
    """One mask on the scores, and the axis of each of the scores' dims where it is applied.

    mode: "add" (a float mask is added, a bool one means keep), "masked_fill" (True is filled), "keep" (False is
    filled). fill: what the hidden scores become, a number or a node; None for "add".
    """

    mask: Node
    mode: MaskMode
    fill: Any
    node: Node
    axes: tuple[int, ...]


@dataclass
class Candidate:
    """One attention as far as the walks got. Fields are None until found; `findings` says what stood in the way.

    lead: sizes of the lead axes 0.. of the first product. row, key: the axes of queries and keys.
    chain: the nodes that the fused operator replaces. copies: casts and repeats of q, k, v that it reads through.
    layouts: sizes and axes that the scores had before each view since the last transpose. out_axes: the axis of each
    dim of `out`. zero_rows: an empty row gives zero (SDPA), else NaN or a mean (softmax).
    """

    anchor: Node
    kind: SiteKind
    findings: Findings = field(default_factory=Findings)
    q: Operand | None = None
    k: Operand | None = None
    v: Operand | None = None
    lead: tuple[Size, ...] = ()
    row: int = -1
    key: int = -1
    factors: list[Factor] = field(default_factory=list)
    default_scale: bool = False
    masks: list[MaskTerm] = field(default_factory=list)
    is_causal: bool = False
    zero_rows: bool = False
    grouped: bool = False
    chain: list[Node] = field(default_factory=list)
    copies: list[Node] = field(default_factory=list)
    layouts: list[tuple[tuple[Size, ...], tuple[int, ...]]] = field(default_factory=list)
    out: Node | None = None
    out_axes: tuple[int, ...] = ()

    @property
    def complete(self) -> bool:
        return None not in (self.q, self.k, self.v, self.out)

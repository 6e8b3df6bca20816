"""A proved attention: everything the rewrite needs, and nothing that it must still decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from ..spec import AttentionSpec, Size
from .axes import Operand
from .candidate import Factor
from .empty_rows import EmptyRows
from .heads import HeadSplit
from .key_masks import KeyMask


@dataclass(frozen=True)
class Match:
    """The nodes of `chain` compute `spec` of q, k, v (each a node with the axis of each dim) and leave it in `out`.

    lead: sizes of the lead axes. out_axes: the axis of each dim of `out`. on_q: scales that go onto q. specialised:
    symbolic values that the rewrite fixes with guards. grouped: k and v have fewer heads than their lead axis says.
    empty_rows: what a row that sees no key becomes behind the operator, which gives 0.
    out_is_written: somebody writes into the output later, which the operator's backward reads.
    """

    anchor: Node
    spec: AttentionSpec
    q: Operand
    k: Operand
    v: Operand
    lead: tuple[Size, ...]
    row: int
    key: int
    heads: HeadSplit
    grouped: bool
    on_q: tuple[Factor, ...]
    specialised: tuple[Any, ...]
    key_mask: KeyMask | None
    empty_rows: EmptyRows
    out: Node
    out_axes: tuple[int, ...]
    chain: tuple[Node, ...]
    out_is_written: bool

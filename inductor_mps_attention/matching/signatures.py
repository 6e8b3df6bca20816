"""The arguments of each operation by name, wherever a spelling puts them: `given(node, "dim")`.

One entry for each operation: its parameters in order, the names that spellings give to one of them joined by `|`, the
default behind `=` (None without one). A spelling with its parameters in this order needs no entry of its own.
"""

from __future__ import annotations

import ast
import functools
from typing import Any

from torch.fx import Node

from .canonical import Op, canonical

_PARAMETERS: dict[Op, str] = {
    Op.SDPA: "query key value attn_mask dropout_p=0.0 is_causal=False scale enable_gqa=False",
    Op.SOFTMAX: "input|self dim",
    Op.SOFTMIN: "input dim",
    Op.LOG_SOFTMAX: "input|self dim",
    Op.MATMUL: "input|self|tensor1 other|mat2|tensor2",
    Op.LINEAR: "input weight bias",
    Op.BADDBMM: "input|self batch1 batch2 beta=1 alpha=1",
    Op.DROPOUT: "input|self p=0.5 training|train=True",
    Op.MUL: "input|self other",
    Op.DIV: "input|self other rounding_mode",
    Op.POW: "input|self exponent",
    Op.ADD: "input|self other alpha=1",
    Op.SUB: "input|self other alpha=1",
    Op.SUM: "input|self dim|axis keepdim|keepdims=False dtype",
    Op.AMAX: "input|self dim|axis keepdim|keepdims=False",
    Op.LOGSUMEXP: "input|self dim|axis keepdim|keepdims=False",
    Op.MASKED_FILL: "input|self mask value",
    Op.WHERE: "condition input|self other",
    Op.REPEAT_INTERLEAVE: "input|self repeats dim",
    Op.STACK: "tensors dim=0",
    Op.CAT: "tensors dim|axis=0",
}
_ONLY_INPUT = "input|self"


def given(node: Node, name: str) -> Any:
    """The argument that `node`'s operation calls `name`, the default where it is not given."""
    for place, names, default in _parameters(canonical(node)):
        if name in names:
            return _found(node, place, names, default)
    raise KeyError(f"{canonical(node)} has no parameter {name!r}")


def _found(node: Node, place: int, names: tuple[str, ...], default: Any) -> Any:
    for keyword in names:
        if keyword in node.kwargs:
            return node.kwargs[keyword]
    return node.args[place] if len(node.args) > place else default


@functools.cache
def _parameters(op: Op) -> list[tuple[int, tuple[str, ...], Any]]:
    parsed = []
    for place, text in enumerate(_PARAMETERS.get(op, _ONLY_INPUT).split()):
        names, _, default = text.partition("=")
        parsed.append((place, tuple(names.split("|")), ast.literal_eval(default) if default else None))
    return parsed

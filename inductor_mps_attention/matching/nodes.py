"""Reading one FX node: its value, shape, arguments, where the user wrote it.

Knows nothing of attention.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

Size = int | torch.SymInt

_TORCH_DIRECTORY = os.path.dirname(torch.__file__) + os.sep
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def value(item: Any) -> Any:
    """The example of a node: Dynamo writes `example_value`, export writes `val`; None for anything else."""
    if not isinstance(item, Node):
        return None
    return item.meta.get("val", item.meta.get("example_value"))


def meta_key(node: Node) -> str:
    """The key under which this graph keeps examples."""
    return "example_value" if "example_value" in node.meta else "val"


def is_tensor(item: Any) -> bool:
    return isinstance(value(item), torch.Tensor)


def shape(node: Node) -> tuple[Size, ...]:
    return tuple(value(node).shape)


def argument(node: Node, position: int, *names: str, default: Any = None) -> Any:
    """An argument by keyword (any of `names`) or position."""
    for name in names:
        if name in node.kwargs:
            return node.kwargs[name]
    return node.args[position] if len(node.args) > position else default


def source_of(node: Node) -> Any:
    """The first positional argument, or the one called `input` or `self`; None if there is none."""
    return argument(node, 0, "input", "self")


def known(condition: Any) -> bool:
    """True if the condition holds for all sizes; adds no guard."""
    return condition is True or bool(statically_known_true(condition))


def same_sizes(left: tuple[Size, ...], right: tuple[Size, ...]) -> bool:
    return len(left) == len(right) and all(known(a == b) for a, b in zip(left, right, strict=True))


def hint(size: Any) -> Any:
    """A size as a number without a guard: its hint. None for an unbacked size."""
    if not isinstance(size, (torch.SymInt, torch.SymFloat)):
        return size
    if free_unbacked_symbols(size):
        return None
    return size.node.hint if size.node.has_hint() else None


def location(node: Node) -> str:
    """`file:line` of the innermost frame outside torch; `<unknown>` when the graph kept no trace."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or node.stack_trace or "")
    outside = [frame for frame in frames if not frame[0].startswith(_TORCH_DIRECTORY)]
    if not frames:
        return "<unknown>"
    file, line = (outside or frames)[-1]
    return f"{file}:{line}"


def input_name(node: Node) -> str:
    """A graph input as the user would call it: `L_self_buffers_bias_` -> `self.bias`, `L_mask_` -> `mask`."""
    text = str(node.target if node.op in ("placeholder", "get_attr") else node.name)
    if not text.startswith(("L_", "l_")):
        return text
    text = text[2:].rstrip("_")
    for holder in ("modules", "buffers", "parameters"):
        text = text.replace(f"_{holder}_", ".")
    return text.replace("self_", "self.", 1) if text.startswith("self_") else text


def inputs_beneath(node: Node) -> list[str]:
    """The names of the tensor inputs that the node is computed from."""
    found = {input_name(source) for source in ancestors(node) if source.op in ("placeholder", "get_attr")}
    return sorted(name for name in found if not name.isidentifier() or not re.fullmatch(r"s\d+", name))


def is_buffer(node: Node) -> bool:
    return node.op == "get_attr" or "_buffers_" in str(node.target)


def ancestors(node: Node, limit: int = 2000) -> Iterator[Node]:
    """The node and everything that it is computed from, at most `limit` nodes."""
    pending, seen = [node], {node}
    while pending and len(seen) <= limit:
        current = pending.pop()
        yield current
        for source in current.all_input_nodes:
            if source not in seen:
                seen.add(source)
                pending.append(source)

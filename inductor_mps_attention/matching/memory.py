"""Which memory a node writes. Knows nothing of attention."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload
from torch.fx import Node

from .canonical import ALIASES, Op, canonical
from .nodes import is_tensor, mutates, source_of


def write_targets(node: Node) -> list[Node]:
    """The tensors that a node may write into: its first argument for an in-place spelling, all of them for a foreign
    function.
    """
    if not mutates(node):
        return []
    if node.kwargs.get("out") is not None:
        return _tensors_in(node.kwargs["out"])
    if isinstance(node.target, OpOverload):
        written = [a for a in node.target._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        places = [node.target._schema.arguments.index(argument) for argument in written]
        found = [node.args[place] for place in places if place < len(node.args)]
        found += [node.kwargs[argument.name] for argument in written if argument.name in node.kwargs]
        return _tensors_in(found)
    if isinstance(node.target, str) or _is_plain_function(node):
        return _tensors_in(source_of(node))
    return [source for source in node.all_input_nodes if is_tensor(source)]


def _tensors_in(item: Any) -> list[Node]:
    """The nodes in an argument, which may be a list of tensors: `_foreach_mul_([a, b], 2)` writes both."""
    if isinstance(item, (tuple, list)):
        return [node for part in item for node in _tensors_in(part)]
    return [item] if isinstance(item, Node) else []


def _is_plain_function(node: Node) -> bool:
    """An operator such as `setitem`, or a torch function that is called in place."""
    module = getattr(node.target, "__module__", None) or "torch"
    name = getattr(node.target, "__name__", "")
    return module in ("_operator", "operator") or (module.split(".")[0] == "torch" and name.endswith("_"))


def is_written(node: Node) -> bool:
    """Does anybody write into the memory of the node, through a view as well?"""
    return any(changes_memory(user, node) for user in node.users)


def changes_memory(user: Node, source: Node) -> bool:
    """Does `user` write into `source`, or anybody into a view of it that `user` makes?"""
    if source in write_targets(user):
        return True
    pending, seen = [user], {user}
    while pending:
        current = pending.pop()
        if canonical(current) not in ALIASES and canonical(current) is not Op.UNKNOWN:
            continue
        for reader in current.users:
            if current in write_targets(reader):
                return True
            if reader not in seen:
                seen.add(reader)
                pending.append(reader)
    return False

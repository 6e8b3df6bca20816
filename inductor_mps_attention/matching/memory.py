"""Which memory a node writes. Knows nothing of attention."""

from __future__ import annotations

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
        given = node.kwargs["out"]
        return [item for item in (given if isinstance(given, (tuple, list)) else [given]) if isinstance(item, Node)]
    if isinstance(node.target, OpOverload):
        written = [a for a in node.target._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        places = [node.target._schema.arguments.index(argument) for argument in written]
        found = [node.args[place] for place in places if place < len(node.args)]
        found += [node.kwargs[argument.name] for argument in written if argument.name in node.kwargs]
        if all(isinstance(item, Node) for item in found):
            return found  # type: ignore[return-value]
    elif isinstance(node.target, str) or _is_plain_function(node):
        return [source_of(node)] if node.args and isinstance(source_of(node), Node) else []
    return [source for source in node.all_input_nodes if is_tensor(source)]


def _is_plain_function(node: Node) -> bool:
    """An operator such as `setitem`, or a torch function that is called in place."""
    module = getattr(node.target, "__module__", None) or "torch"
    name = getattr(node.target, "__name__", "")
    return module in ("_operator", "operator") or (module.split(".")[0] == "torch" and name.endswith("_"))


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

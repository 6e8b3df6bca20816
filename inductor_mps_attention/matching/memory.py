"""Whose memory a node writes, and who shares it: the one place that decides what a mutation is.

Knows nothing of attention.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import torch
from torch.fx import Node

from .canonical import ALIASES, FRESH, Op, canonical
from .nodes import ancestors, is_tensor, source_of


class Writes(Enum):
    """What a node may write into."""

    NOTHING = auto()
    OUT = auto()  # out=
    SCHEMA = auto()  # what the schema of an ATen overload says
    FIRST = auto()  # its first argument: an in-place method or operator
    ANYTHING = auto()  # every tensor that a foreign function is given


_IN_PLACE_OPERATORS = frozenset(
    getattr(operator, name)
    for name in (
        *("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul"),
        *("iand", "ior", "ixor", "ilshift", "irshift", "setitem", "delitem"),
    )
)
_IN_PLACE_METHODS = frozenset(f"__{function.__name__}__" for function in _IN_PLACE_OPERATORS)
# These end in an underscore, or have a mutable schema, and leave the values as they are.
_NAME_ONLY = frozenset({"detach_", "requires_grad_", "detach_.default"})


def writes(node: Node) -> Writes:
    """The one decision, by the form of the call. Unknown functions may write into anything."""
    if node.op not in ("call_function", "call_method"):
        return Writes.ANYTHING if node.op == "call_module" else Writes.NOTHING
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name in _NAME_ONLY:
        return Writes.NOTHING
    if node.kwargs.get("out") is not None:
        return Writes.OUT
    if isinstance(target, torch._ops.OpOverload):
        return Writes.SCHEMA if target._schema.is_mutable else Writes.NOTHING
    if isinstance(target, torch._ops.HigherOrderOperator):
        return Writes.ANYTHING
    if _asks_for_in_place(node):
        return Writes.FIRST
    module = getattr(target, "__module__", None) or "torch"
    if isinstance(target, str) or module in ("builtins", "math") or module.split(".")[0] == "torch":
        return Writes.FIRST if _is_in_place_name(name) else Writes.NOTHING
    if module in ("_operator", "operator"):
        return Writes.FIRST if target in _IN_PLACE_OPERATORS else Writes.NOTHING
    return Writes.ANYTHING


def _is_in_place_name(name: str) -> bool:
    """`mul_`, `_foreach_mul_`, `__imul__`, `__setitem__`."""
    return (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE_METHODS


def _asks_for_in_place(node: Node) -> bool:
    """`F.relu(x, True)`, `F.dropout(x, inplace=True)`."""
    if "inplace" in node.kwargs:
        return node.kwargs["inplace"] is not False
    place = -1 if isinstance(node.target, str) else _place_of_inplace(node.target)
    return 0 <= place < len(node.args) and node.args[place] is not False


@functools.cache
def _place_of_inplace(target: Callable[..., Any]) -> int:
    """Where the parameter `inplace` of a Python function stands, -1 if it has none."""
    if not inspect.isfunction(target):
        return -1
    names = list(inspect.signature(target).parameters)
    return names.index("inplace") if "inplace" in names else -1


def mutates(node: Node) -> bool:
    """May this node write into memory that existed before it?"""
    return writes(node) is not Writes.NOTHING


def write_targets(node: Node) -> list[Node]:
    """The tensors that a node may write into."""
    how = writes(node)
    if how is Writes.NOTHING:
        return []
    if how is Writes.OUT:
        return _tensors_in(node.kwargs["out"])
    if how is Writes.SCHEMA:
        return _tensors_in(_written_by_schema(node))
    if how is Writes.FIRST:
        return _tensors_in(source_of(node))
    return [source for source in node.all_input_nodes if is_tensor(source)]


def _written_by_schema(node: Node) -> list[Any]:
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    written = [
        (place, argument.name)
        for place, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    found = [node.args[place] for place, _ in written if place < len(node.args)]
    return found + [node.kwargs[name] for _, name in written if name in node.kwargs]


def _tensors_in(item: Any) -> list[Node]:
    """The nodes in an argument, which may be a list of tensors: `_foreach_mul_([a, b], 2)` writes both."""
    if isinstance(item, (tuple, list)):
        return [node for part in item for node in _tensors_in(part)]
    return [item] if isinstance(item, Node) else []


def is_dead(node: Node) -> bool:
    """Does nobody read it, and does it write nothing? Unpacking a tuple leaves such nodes."""
    return node.op in ("call_function", "call_method") and not node.users and not mutates(node)


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


def may_share(target: Node, source: Node) -> bool:
    """May the two share memory?

    Not if the target is a view of something made fresh, from which the source is not computed.
    """
    while (canonical(target) in ALIASES or mutates(target)) and isinstance(source_of(target), Node):
        target = source_of(target)
    return canonical(target) not in FRESH or target in ancestors(source)

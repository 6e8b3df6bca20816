"""Adding nodes with examples to a graph, and taking them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.fx import Graph, Node

from .nodes import meta_key, shape, value

aten = torch.ops.aten
_COPIED_META = ("stack_trace", "nn_module_stack", "source_fn_stack", "custom")


class Builder:
    """Adds nodes before one node, each with an example; remembers them, so that a failure can take them back.

    like: the node that tells the key and the mode of examples; `before` if not given.
    """

    def __init__(self, graph: Graph, before: Node, like: Node | None = None):
        self.graph, self.before = graph, before
        like = before if like is None else like
        self.key = meta_key(like)
        self.added: list[Node] = []
        self._fake_mode = _fake_mode(value(like))

    @property
    def shape_env(self) -> Any:
        """Of the examples; None when they are real tensors."""
        return getattr(self._fake_mode, "shape_env", None)

    def call(self, target: Callable[..., Any], *args: Any) -> Node:
        with self.graph.inserting_before(self.before):
            node = self.graph.call_function(target, args)
        self.added.append(node)
        node.meta.update({key: self.before.meta[key] for key in _COPIED_META if key in self.before.meta})
        with self._fake_mode, torch.no_grad():
            node.meta[self.key] = target(*torch.fx.map_arg(args, value))
        return node

    def size(self, node: Node, dim: int) -> int | Node:
        """The size of a dim as an argument: a number, or a node that computes it."""
        static = shape(node)[dim]
        return static if isinstance(static, int) else self.call(aten.sym_size.int, node, dim)

    @contextmanager
    def whole_or_nothing(self) -> Iterator[None]:
        """A failure inside takes back all that was added, and goes on."""
        try:
            yield
        except Exception:  # of any kind: whoever catches it finds the graph as it was
            self.discard()
            raise

    def discard(self) -> None:
        for node in reversed(self.added):
            self.graph.erase_node(node)
        self.added.clear()


def _fake_mode(example: Any) -> AbstractContextManager[Any]:
    """The mode that made the example, or nothing for real tensors."""
    first = example[0] if isinstance(example, (tuple, list)) and example else example
    mode: AbstractContextManager[Any] | None = getattr(first, "fake_mode", None)
    return nullcontext() if mode is None else mode

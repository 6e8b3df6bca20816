"""One element of a tensor of the graph as a function of its indices. The core: scalars, casts, memory, dispatch.

A boolean element is a Formula. A number is a list of cases (condition, leaf); a leaf is an integer expression in the
indices and sizes, or a Python float. Every operation must be in the table, else the element is Unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..canonical import ALIASES, FRESH, Op, canonical, spelling
from ..memory import mutates, write_targets
from ..nodes import input_name, is_buffer, is_tensor, shape, source_of, value
from .formulas import ONE, ZERO, Formula, FromInput, Prover, Unknown, need

Leaf = Any  # sympy.Expr | float
Cases = list[tuple[Formula, Leaf]]
Value = Any  # Formula | Cases
Index = tuple[sympy.Expr, ...]
Rule = Callable[["Elements", Node, Index], Value]

MAX_ELEMENTS, MAX_CASES, MAX_ANCESTORS = 4000, 8, 300
_IN_PLACE = frozenset({Op.MASKED_FILL, Op.TRIL, Op.TRIU})
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

RULES: dict[Op, Rule] = {}


def rule(*ops: Op) -> Callable[[Rule], Rule]:
    """Enters a function into the table of operations."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return enter


class DependsOnInput(Unknown):
    """The element depends on an input of the graph."""

    def __init__(self, node: Node):
        self.node = node
        hint = ""
        if is_buffer(node):
            hint = (
                ", a registered buffer, whose content is not guarded; build the mask in forward from sizes"
                " (torch.ones(q_len, kv_len).tril()) or use is_causal=True"
            )
        super().__init__(f"depends on input `{input_name(node)}`{hint}")


class Elements:
    """Reads elements of the tensors of one graph.

    keep_inputs: a boolean that depends on an input becomes an atom FromInput; without it, it is Unknown.
    """

    def __init__(self, prover: Prover, keep_inputs: bool = False):
        self.prover, self.keep_inputs = prover, keep_inputs
        self._memory: dict[Any, Value] = {}
        self._unwritten: set[Node] = set()
        self._written: dict[Node, int] = {}  # how many of the writes on a fresh tensor are done where it is read

    # ---- sizes and numbers

    def expression(self, item: Any) -> sympy.Expr:
        """A size or Python integer of the graph as an integer expression."""
        if isinstance(item, Node):
            item = value(item)
        if isinstance(item, int):
            return sympy.Integer(int(item))
        if isinstance(item, torch.SymInt):
            need(item.node.is_symbolic(), "a nested size")
            need(not free_unbacked_symbols(item), f"the unbacked size {item}")
            return sympy.sympify(item.node.expr)
        raise Unknown(f"a scalar of type {type(item).__name__}")

    def sizes(self, node: Node) -> list[sympy.Expr]:
        return [self.expression(size) for size in shape(node)]

    def scalar(self, item: Any) -> Value:
        if isinstance(item, bool):
            return item
        return [(True, item)] if isinstance(item, float) else [(True, self.expression(item))]

    def numbers(self, element: Value) -> Cases:
        """An element as a number; True is 1."""
        return (
            element
            if isinstance(element, list)
            else self.merged([(element, ONE), (self.prover.negation(element), ZERO)])
        )

    def merged(self, cases: Cases) -> Cases:
        """Cases of the same leaf as one. -0.0 and 0.0 are two leaves."""
        kept: dict[Any, tuple[Leaf, list[Formula]]] = {}
        for condition, leaf in cases:
            if condition is False:
                continue
            need(not (isinstance(leaf, float) and math.isnan(leaf)), "a NaN in the mask")
            key = (leaf, math.copysign(1, leaf)) if isinstance(leaf, float) else leaf
            kept.setdefault(key, (leaf, []))[1].append(condition)
        need(len(kept) <= MAX_CASES, f"more than {MAX_CASES} different values")
        if len(kept) == 1:
            return [(True, next(iter(kept.values()))[0])]
        return [(self.prover.any_of(*conditions), leaf) for leaf, conditions in kept.values()]

    def cast(self, element: Value, dtype: torch.dtype) -> Value:
        """The element converted as torch converts it. Positions stay int64: elsewhere they would be rounded or wrap."""
        prover = self.prover
        if dtype is torch.bool:
            if not isinstance(element, list):
                return element
            nonzero = [
                (c, leaf != 0 if isinstance(leaf, float) else prover.compare("ne", leaf, ZERO)) for c, leaf in element
            ]
            return prover.any_of(*(prover.all_of(condition, truth) for condition, truth in nonzero))
        cases = self.numbers(element)
        if dtype is torch.int64 and not any(isinstance(leaf, float) for _, leaf in cases):
            return cases
        need(dtype in _FLOATS or dtype in _INTEGERS, f"values of {dtype}")
        need(all(isinstance(leaf, float) or leaf.is_number for _, leaf in cases), f"positions cast to {dtype}")
        if dtype.is_floating_point:
            return self.merged(
                [(c, torch.tensor(float(leaf), dtype=torch.float64).to(dtype).item()) for c, leaf in cases]
            )
        small = all(math.isfinite(leaf) and abs(leaf) < 127 and (leaf >= 0 or dtype.is_signed) for _, leaf in cases)
        need(small, f"a number outside 0..126 cast to {dtype}")
        return self.merged([(c, sympy.Integer(int(leaf))) for c, leaf in cases])

    # ---- elements

    def element(self, node: Any, index: Sequence[sympy.Expr]) -> Value:
        """The element of a tensor at `index`; a Python number is its own element. Raises Unknown."""
        if not isinstance(node, Node):
            return self.scalar(node)
        if not is_tensor(node):
            return self.scalar(value(node))
        place = tuple(map(sympy.expand, index))
        key = (node, place, tuple(self._written.items()))
        if key not in self._memory:
            need(len(self._memory) < MAX_ELEMENTS, "the mask is too large to follow")
            need(len(place) == value(node).dim(), f"the rank of `{node.name}`")
            self.check_unwritten(node)
            element = self._after_writes(node, place)
            self._memory[key] = self.merged(element) if isinstance(element, list) else element
        return self._memory[key]

    def _after_writes(self, node: Node, index: Index) -> Value:
        """The element as readers see it, after statements such as `mask.masked_fill_(..)`: the last is asked first."""
        statements = _statements(node)
        done = self._written.get(node, len(statements))
        if done == 0:
            return self._computed(node, index)
        self._written[node] = done - 1
        try:
            return self._computed(statements[done - 1], index)
        finally:
            del self._written[node]
            if done < len(statements):
                self._written[node] = done

    def _computed(self, node: Node, index: Index) -> Value:
        try:
            if node.op in ("placeholder", "get_attr"):
                raise DependsOnInput(node)
            need(node.op in ("call_function", "call_method"), f"a node of kind {node.op}")
            need(node.kwargs.get("out") is None, "out=")
            known = RULES.get(canonical(node))
            if known is None:
                raise Unknown(f"{spelling(node)} is not followed")
            return known(self, node, index)
        except DependsOnInput:
            if not self.keep_inputs or value(node).dtype is not torch.bool:
                raise
            self._check_ancestors(node)
            return FromInput(node, index)

    def aligned(self, item: Any, index: Index, out: Sequence[sympy.Expr]) -> Value:
        """The element of an operand of a broadcasting operation whose result has sizes `out`, at the result's
        `index`.
        """
        if not is_tensor(item):
            return self.element(item, ())
        own = self.sizes(item)
        skipped = len(out) - len(own)
        need(skipped >= 0, f"the rank of `{item}`")
        return self.element(
            item, [self.within(size, out[skipped + d], index[skipped + d]) for d, size in enumerate(own)]
        )

    def within(self, own: sympy.Expr, full: sympy.Expr, place: sympy.Expr) -> sympy.Expr:
        """The index into a dim of size `own` that is broadcast to `full`."""
        if own == 1:
            return ZERO
        need(self.prover.equal(own, full), f"the size {own} against {full}")
        return place

    def uniform(self, node: Node, why: str) -> Value:
        """The element of a tensor that is the same everywhere, so that any rearrangement is the identity."""
        element = self.element(node, [self.prover.index("any", size) for size in self.sizes(node)])
        constant = (
            isinstance(element, list) and len(element) == 1 and element[0][0] is True and _is_number(element[0][1])
        )
        need(isinstance(element, bool) or constant, why)
        return element

    # ---- memory

    def check_unwritten(self, node: Node) -> None:
        """Nobody may write into the node's memory, views of it included; an ancestor walk would miss that."""
        if node in self._unwritten:
            return
        self._unwritten.add(node)
        pending, seen = [node], {node}
        while pending:
            current = pending.pop()
            statements = _statements(current)
            for user in current.users:
                if user in seen or user in statements or _owns_write(user, current):
                    continue
                seen.add(user)
                need(current not in write_targets(user), f"{spelling(user)} `{user.name}` may write into it")
                if canonical(user) in ALIASES or canonical(user) is Op.UNKNOWN:
                    pending.append(user)

    def _check_ancestors(self, node: Node) -> None:
        """An atom is read later than in eager: nothing that it is made of may be written."""
        pending, seen = [node], {node}
        while pending:
            current = pending.pop()
            self.check_unwritten(current)
            fresh = [source for source in current.all_input_nodes if source not in seen]
            seen.update(fresh)
            pending += fresh
            need(len(seen) <= MAX_ANCESTORS, "the mask is too large to follow")


def _statements(node: Node) -> list[Node]:
    """In-place writes on a fresh tensor whose result nobody uses, in order; none unless all stand before any reader."""
    if canonical(node) not in FRESH or mutates(node):
        return []
    found = [user for user in node.users if _is_statement(user, node)]
    readers = [user for user in node.users if user not in found]
    return sorted(found) if all(write < reader for write in found for reader in readers) else []


def _is_statement(user: Node, node: Node) -> bool:
    return (
        canonical(user) in _IN_PLACE and write_targets(user) == [node] and not user.users and user.args[:1] == (node,)
    )


def _owns_write(user: Node, current: Node) -> bool:
    """`torch.full(..).triu_(1)`: written in place by its only reader, so it is as good as a new tensor."""
    if not (mutates(user) and canonical(user) in _IN_PLACE and source_of(user) is current and len(current.users) == 1):
        return False
    return canonical(current) in FRESH and (not mutates(current) or canonical(current) in _IN_PLACE)


def _is_number(leaf: Leaf) -> bool:
    return isinstance(leaf, float) or bool(leaf.is_number)

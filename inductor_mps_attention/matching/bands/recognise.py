"""A mask node -> ProvedBand. The entry to this folder; each mask of a graph is read once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import sympy
import torch
from torch.fx import Graph, Node

from ..nodes import Size, is_tensor, value
from . import arithmetic, rearrangements
from .elements import Cases, Elements
from .formulas import ZERO, Formula, Prover, Unknown, need
from .intervals import ProvedBand, band_of, full_rows_where, intersection

__all__ = ["RULE_MODULES", "MaskReader", "Unknown"]

RULE_MODULES = (arithmetic, rearrangements)
"""Importing these fills the table of operations."""

Mode = Literal["add", "masked_fill", "keep"]
Role = Literal["query", "key", "lead"]


class MaskReader:
    """Reads masks of one graph. Answers are kept, Unknown ones too, since all layers of a model share their mask."""

    def __init__(self, graph: Graph):
        self.shape_env = _shape_env(graph)
        self._answers: dict[Any, ProvedBand | Unknown] = {}

    def band(
        self, mask: Node, mode: Mode, roles: tuple[Role, ...], queries: Any, keys: Any, keep_inputs: bool
    ) -> ProvedBand:
        """The band of a mask that is broadcast to dims with these roles, `queries` and `keys` long (int or SymInt).

        Raises Unknown; DependsOnInput if that is the reason.
        """
        question = (mask, mode, roles, str(queries), str(keys), keep_inputs)
        if question not in self._answers:
            try:
                self._answers[question] = self._read_or_assume(mask, mode, roles, queries, keys, keep_inputs)
            except Unknown as unknown:
                self._answers[question] = unknown
            except RecursionError:
                self._answers[question] = Unknown("the mask is too deep to follow")
        answer = self._answers[question]
        if isinstance(answer, Unknown):
            raise answer
        return answer

    def size(self, bound: sympy.Expr | None) -> Size | None:
        """A bound as a number or a SymInt."""
        if bound is None or bound.is_Integer:
            return None if bound is None else int(bound)
        size: Size = self.shape_env.create_symintnode(bound, hint=int(self._at_example(bound)))
        return size

    def condition(self, condition: sympy.Basic) -> Any:
        """A condition on sizes as a SymBool, on which the rewrite guards; None where it fails for the example."""
        if self._at_example(condition) != sympy.true:
            return None
        return self.shape_env.create_symboolnode(condition)

    def _at_example(self, expression: sympy.Basic) -> sympy.Basic:
        return expression.xreplace(
            {symbol: self.shape_env.guarding_hint_or_throw(symbol) for symbol in expression.free_symbols}
        )

    def number(self, item: Any) -> float:
        """A constant, given as a number or as a tensor that is the same everywhere. Raises Unknown."""
        if isinstance(item, (int, float)):
            return float(item)
        elements = Elements(Prover(self.shape_env))
        place = [elements.prover.index("any", size) for size in elements.sizes(item)] if is_tensor(item) else []
        cases = elements.numbers(elements.element(item, place))
        need(len(cases) == 1, f"`{item}` is not one number")
        leaf = cases[0][1]
        need(isinstance(leaf, float) or leaf.is_number, f"`{item}` is not one number")
        return float(leaf)

    def _read_or_assume(self, *question: Any) -> ProvedBand:
        """A width that is an argument may be negative: where that stands in the way, it is assumed to be positive, or
        zero, as it is now.
        """
        prover = Prover(self.shape_env)
        try:
            return self._read(prover, *question)
        except Unknown:
            hints = {symbol: int(self._at_example(symbol)) for symbol in prover.unbounded}
            assumed = {symbol: min(hint, 1) for symbol, hint in hints.items() if hint >= 0}
            if not assumed:
                raise
            found = self._read(Prover(self.shape_env, assumed), *question)
            return replace(found, where=sympy.And(*(sympy.Ge(symbol, least) for symbol, least in assumed.items())))

    def _read(
        self,
        prover: Prover,
        mask: Node,
        mode: Mode,
        roles: tuple[Role, ...],
        queries: Any,
        keys: Any,
        keep_inputs: bool,
    ) -> ProvedBand:
        elements = Elements(prover, keep_inputs)
        i = prover.index("query", elements.expression(queries))
        j = prover.index("key", elements.expression(keys))
        own = elements.sizes(mask)
        index: list[sympy.Expr] = []
        dims: dict[sympy.Symbol, int] = {}
        for size, (dim, role) in zip(own, list(enumerate(roles))[len(roles) - len(own) :], strict=True):
            if role == "lead":
                symbol = ZERO if size == 1 else prover.index("lead", size)
                index.append(symbol)
            else:
                symbol = i if role == "query" else j
                index.append(elements.within(size, prover.sizes[symbol], symbol))
            dims[symbol] = dim
        dims.pop(ZERO, None)
        element = elements.element(mask, index)
        if mode != "add":
            formula, fill = elements.cast(element, torch.bool), -math.inf
            formula = prover.negation(formula) if mode == "masked_fill" else formula
        elif isinstance(element, list):
            formula, fill = _additive(prover, element)
        else:
            formula, fill = element, -math.inf
        return band_of(prover, formula, i, j, fill, dims)

    def intersection(self, bands: Sequence[ProvedBand], queries: Any, keys: Any) -> tuple[ProvedBand, sympy.Basic]:
        """What all of the bands let through, and the condition on the sizes under which no row of it is empty."""
        prover = Prover(self.shape_env)
        sizes = [Elements(prover).expression(size) for size in (queries, keys)]
        whole = intersection(prover, bands, *sizes)
        return whole, full_rows_where(prover, whole, *sizes)


def _additive(prover: Prover, cases: Cases) -> tuple[Formula, float]:
    """A float mask that is added: 0 where a key is seen, one negative number elsewhere."""
    seen = [condition for condition, leaf in cases if leaf == 0]
    hidden = [leaf for _, leaf in cases if leaf != 0]
    biases = ", ".join(str(leaf) for leaf in hidden[:3])
    need(
        all(isinstance(leaf, float) and leaf < 0 for leaf in hidden) and len(hidden) <= 1,
        f"adds {biases}, not 0 or -inf",
    )
    return prover.any_of(*seen) if seen else False, hidden[0] if hidden else -math.inf


def _shape_env(graph: Graph) -> Any:
    for node in graph.nodes:
        example = value(node)
        if isinstance(example, torch.SymInt):
            return example.node.shape_env
        fake_mode = getattr(example, "fake_mode", None)
        if fake_mode is not None and fake_mode.shape_env is not None:
            return fake_mode.shape_env
    return None

"""A mask node -> ProvedBand. The entry to this folder; each mask of a graph is read once."""

from __future__ import annotations

import math
from typing import Any, Literal

import sympy
import torch
from torch.fx import Graph, Node

from ..nodes import is_tensor, value
from . import arithmetic, rearrangements
from .elements import Cases, Elements
from .formulas import ZERO, Formula, Prover, Unknown, need
from .intervals import ProvedBand, band_of

__all__ = ["RULE_MODULES", "MaskReader", "Unknown"]

RULE_MODULES = (arithmetic, rearrangements)
"""Importing these fills the table of operations."""

Mode = Literal["add", "masked_fill", "keep"]
Role = Literal["query", "key", "lead"]


class MaskReader:
    """Reads masks of one graph. Answers are kept, Unknown ones too, since all layers of a model share their mask."""

    def __init__(self, graph: Graph):
        self._shape_env = _shape_env(graph)
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
                self._answers[question] = self._read(mask, mode, roles, queries, keys, keep_inputs)
            except Unknown as unknown:
                self._answers[question] = unknown
            except RecursionError:
                self._answers[question] = Unknown("the mask is too deep to follow")
        answer = self._answers[question]
        if isinstance(answer, Unknown):
            raise answer
        return answer

    def number(self, item: Any) -> float:
        """A constant, given as a number or as a tensor that is the same everywhere. Raises Unknown."""
        if isinstance(item, (int, float)):
            return float(item)
        elements = Elements(Prover(self._shape_env))
        place = [elements.prover.index("any", size) for size in elements.sizes(item)] if is_tensor(item) else []
        cases = elements.numbers(elements.element(item, place))
        need(len(cases) == 1, f"`{item}` is not one number")
        leaf = cases[0][1]
        need(isinstance(leaf, float) or leaf.is_number, f"`{item}` is not one number")
        return float(leaf)

    def _read(
        self, mask: Node, mode: Mode, roles: tuple[Role, ...], queries: Any, keys: Any, keep_inputs: bool
    ) -> ProvedBand:
        prover = Prover(self._shape_env)
        elements = Elements(prover, keep_inputs)
        i = prover.index("query", elements.expression(queries))
        j = prover.index("key", elements.expression(keys))
        own = elements.sizes(mask)
        index: list[sympy.Expr] = []
        for size, role in zip(own, roles[len(roles) - len(own) :], strict=True):
            if role == "lead":
                index.append(ZERO if size == 1 else prover.index("lead", size))
            else:
                symbol = i if role == "query" else j
                index.append(elements.within(size, prover.sizes[symbol], symbol))
        element = elements.element(mask, index)
        if mode != "add":
            formula = elements.cast(element, torch.bool)
            return band_of(prover, prover.negation(formula) if mode == "masked_fill" else formula, i, j, -math.inf)
        if not isinstance(element, list):
            return band_of(prover, element, i, j, -math.inf)
        formula, fill = _additive(prover, element)
        return band_of(prover, formula, i, j, fill)


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

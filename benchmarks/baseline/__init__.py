"""Attention in separate Metal kernels, with the scores in memory, on the same engine as ours: the baseline whose ratio
to a fused kernel has a meaning. Each of its products is tuned over VARIANTS in the run that uses it, and it states its
own quality, so that a ratio over a weak baseline can be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import torch
from torch import Tensor

from ..engines.engine import Engine
from ..problem import Problem

_ELEMENTS = {"float16": "half", "bfloat16": "bfloat", "float32": "float"}
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True)
class Variant:
    """A tile of rows x columns of a product, staged in slices of `depth` 16-bit elements, or half as many floats."""

    rows: int
    columns: int
    depth: int

    @property
    def threads(self) -> int:
        """A simdgroup for each 32 x 32 part of the tile."""
        return self.rows * self.columns // 32


VARIANTS = (Variant(64, 64, 32), Variant(64, 64, 64), Variant(128, 64, 32))
STEP = 64
"""Lengths and head dims must be multiples of it."""
ROW_TILE = max(variant.rows for variant in VARIANTS)
"""Causal rows are cleared to the next multiple of it, as far as any product reads them."""


def text(name: str, **values: Any) -> str:
    """A rendered Metal text of this folder."""
    return _TEMPLATES.get_template(f"{name}.metal.jinja").render(**values)


def element(dtype: str) -> str:
    """A dtype's name in Metal."""
    return _ELEMENTS[dtype]


def refusal(problem: Problem, *, backward: bool) -> str | None:
    """Why the pipeline cannot do a problem, or None."""
    if any(size % STEP for size in (problem.q_len, problem.kv_len, problem.head_dim)):
        return f"lengths and head dims must be multiples of {STEP}"
    if problem.lower is not None or (problem.upper is not None and problem.q_len != problem.kv_len):
        return "no band but causal over equal lengths"
    copies = 3 if backward else 1
    if problem.score_elements * problem.element_size * copies > 48 << 30:
        return "the scores take more than 48 GiB"
    return None


def products_text(problem: Problem, variant: Variant) -> str:
    """The products of the pipeline for a problem, tiled as the variant says."""
    return text(
        "products",
        element=element(problem.dtype),
        rows=variant.rows,
        columns=variant.columns,
        depth=variant.depth * 2 // problem.element_size,
        threads=variant.threads,
        causal=problem.is_causal,
    )


def rows_text(problem: Problem) -> str:
    """Softmax and its gradient for a problem."""
    threads = _row_threads(problem)
    return text(
        "rows",
        element=element(problem.dtype),
        causal=problem.is_causal,
        row_tile=ROW_TILE,
        row_threads=threads,
        row_steps=-(-problem.kv_len // (4 * threads)),
    )


def _row_threads(problem: Problem) -> int:
    """Sixteen elements of a row a thread, in whole simdgroups, 32 to 256 threads."""
    return min(256, max(32, problem.kv_len // 16 // 32 * 32))


class Unfused:
    """The pipeline for one problem; tensors are contiguous."""

    def __init__(self, engine: Engine, problem: Problem, seconds: float = 0.02):
        """`seconds` is what timing one variant of one product may take, on engines whose times mean something."""
        reason = refusal(problem, backward=False)
        if reason is not None:
            raise ValueError(f"{problem.label()}: {reason}")
        self._engine, self._problem, self._seconds = engine, problem, seconds
        self._row_threads = _row_threads(problem)
        self._row_library = engine.logged_library(rows_text(problem))
        self._libraries = {
            variant: engine.logged_library(products_text(problem, variant))
            for variant in (VARIANTS if engine.times_are_meaningful else VARIANTS[:1])
        }
        self._chosen: dict[str, Variant] = {}
        self._sizes = [problem.q_len, problem.kv_len, problem.head_dim, problem.heads // problem.kv_heads]

    @property
    def chosen(self) -> dict[str, Variant]:
        """The fastest variant of each product that has run."""
        return dict(self._chosen)

    def scores(self, left: Tensor, right: Tensor, result: Tensor, factor: float) -> None:
        """result = factor * left right^T, each (batch, heads, rows, head_dim)."""
        self._product("scores", (left, right, result), self._problem.q_len, self._problem.kv_len, factor)

    def softmax(self, scores: Tensor) -> None:
        """Of each row, in place."""
        self._rows("softmax", scores, self._sizes)

    def rows_of(self, scores: Tensor, right: Tensor, result: Tensor) -> None:
        """result = scores right."""
        self._product("rows_of", (scores, right, result), self._problem.q_len, self._problem.head_dim, 1.0)

    def columns_of(self, scores: Tensor, right: Tensor, result: Tensor) -> None:
        """result = scores^T right, a query head each."""
        self._product("columns_of", (scores, right, result), self._problem.kv_len, self._problem.head_dim, 1.0)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """out and the weights, which the backward needs."""
        weights = q.new_empty((*q.shape[:3], self._problem.kv_len))
        out = torch.empty_like(q)
        self.scores(q, k, weights, self._problem.scale)
        self.softmax(weights)
        self.rows_of(weights, v, out)
        return out, weights

    def backward(
        self, grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v; those of a key head are summed over its query heads by torch."""
        grad_scores = torch.empty_like(weights)
        self.scores(grad_out, v, grad_scores, 1.0)
        self._rows("softmax_backward", weights, grad_scores, self._sizes, self._problem.scale)
        grad_q = torch.empty_like(q)
        self.rows_of(grad_scores, k, grad_q)
        grad_k, grad_v = (q.new_empty((*q.shape[:2], self._problem.kv_len, q.shape[3])) for _ in range(2))
        self.columns_of(grad_scores, q, grad_k)
        self.columns_of(weights, grad_out, grad_v)
        return grad_q, self._summed(grad_k), self._summed(grad_v)

    def _product(
        self, name: str, tensors: tuple[Tensor, Tensor, Tensor], rows: int, columns: int, factor: float
    ) -> None:
        if name not in self._chosen:
            calls = {
                variant: self._call(variant, name, tensors, rows, columns, factor)
                for variant in self._libraries
                if rows % variant.rows == 0 and columns % variant.columns == 0
            }
            self._chosen[name] = self._fastest(calls)
        self._call(self._chosen[name], name, tensors, rows, columns, factor)()

    def _fastest(self, calls: dict[Variant, Callable[[], None]]) -> Variant:
        if len(calls) == 1:
            return next(iter(calls))
        times = {variant: self._engine.measure(call, self._seconds).median for variant, call in calls.items()}
        return min(times, key=lambda variant: times[variant])

    def _call(
        self,
        variant: Variant,
        name: str,
        tensors: tuple[Tensor, Tensor, Tensor],
        rows: int,
        columns: int,
        factor: float,
    ) -> Callable[[], None]:
        heads = self._problem.batch * self._problem.heads
        threads = (columns // variant.columns * variant.threads, rows // variant.rows, heads)
        kernel = getattr(self._libraries[variant], name)
        return lambda: kernel(*tensors, self._sizes, factor, threads=threads, group_size=(variant.threads, 1, 1))

    def _rows(self, name: str, *arguments: object) -> None:
        groups = self._problem.q_len // (2 if self._problem.is_causal else 1)
        threads = (groups * self._row_threads, self._problem.batch * self._problem.heads)
        kernel = getattr(self._row_library, name)
        kernel(*arguments, threads=threads, group_size=(self._row_threads, 1))

    def _summed(self, grad: Tensor) -> Tensor:
        group = self._problem.heads // self._problem.kv_heads
        if group == 1:
            return grad
        return grad.reshape(grad.shape[0], self._problem.kv_heads, group, *grad.shape[2:]).sum(2)

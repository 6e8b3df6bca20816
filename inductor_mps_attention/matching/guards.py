"""Can a kernel compute it, and is it worth it? Each guard is a function from what is known to a Rejection or None.

All guards that have what they need are asked, so that the user sees every no at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from ..codegen import APPLE, Problem, supported
from ..config import Options
from ..errors import Reason, Rejection
from .axes import INNER, VALUE, Operand
from .candidate import Candidate
from .nodes import hint, known, value

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Known:
    """What is known of one candidate when the guards are asked."""

    candidate: Candidate
    options: Options
    device_types: tuple[str, ...]
    dtype: torch.dtype | None = None
    has_lower: bool = False
    has_upper: bool = False
    key_mask: bool = False
    assumed: list[Any] = field(default_factory=list)
    """Equalities of sizes that hold for this example and are not proved; the rewrite guards on them."""

    @cached_property
    def operands(self) -> dict[str, Operand]:
        found = {"q": self.candidate.q, "k": self.candidate.k, "v": self.candidate.v}
        return {name: operand for name, operand in found.items() if operand is not None}

    @cached_property
    def examples(self) -> dict[str, torch.Tensor]:
        """Tensors whose device and layout decide: q, k and v, or the anchor's own value when they are not found."""
        found = {name: value(operand.node) for name, operand in self.operands.items()}
        return found or {"the result": value(self.candidate.anchor)}

    def head_dims(self) -> tuple[Any, Any]:
        q, v = self.operands.get("q"), self.operands.get("v")
        return (q.size(INNER) if q else None, v.size(VALUE) if v else None)


Guard = Callable[[Known], Rejection | None]


def device(facts: Known) -> Rejection | None:
    """The kernels are Metal: everything must be on MPS."""
    for name, example in facts.examples.items():
        if isinstance(example, torch.Tensor) and example.device.type not in facts.device_types:
            return Rejection(
                Reason.DEVICE, f"{name} is on {example.device}; kernels run on {_either(facts.device_types)}"
            )
    return None


def layout(facts: Known) -> Rejection | None:
    """Kernels read dense strided memory."""
    for name, example in facts.examples.items():
        if isinstance(example, torch.Tensor) and (example.is_nested or example.layout is not torch.strided):
            return Rejection(
                Reason.LAYOUT, f"{name} is nested or sparse ({example.layout}); kernels read strided tensors"
            )
    return None


def dtype(facts: Known) -> Rejection | None:
    """float32, float16 and bfloat16."""
    for name, example in facts.examples.items():
        if isinstance(example, torch.Tensor) and example.dtype not in DTYPES:
            return Rejection(Reason.DTYPE, f"{name} is {example.dtype}; kernels have {_either(map(_plain, DTYPES))}")
    if facts.dtype is not None and facts.dtype not in DTYPES:
        return Rejection(Reason.DTYPE, f"the output is {facts.dtype}; kernels have {_either(map(_plain, DTYPES))}")
    return None


def rank(facts: Known) -> Rejection | None:
    """A hand-written attention has at least one batch axis: a 2-D one is more often a mixture head."""
    if facts.candidate.complete and facts.candidate.kind == "manual" and not facts.candidate.lead:
        return Rejection(Reason.RANK, "the scores have 2 dims; a hand-written attention is fused from 3 on")
    return None


def lengths(facts: Known) -> Rejection | None:
    """k and v have the same keys; no length is zero."""
    if not facts.candidate.complete:
        return None
    q, k, v = facts.operands["q"], facts.operands["k"], facts.operands["v"]
    row, key = facts.candidate.row, facts.candidate.key
    if not _equal(facts, k.size(key), v.size(key)):
        return Rejection(Reason.SHAPE, f"k has {k.size(key)} keys, v has {v.size(key)}; they must be equal")
    for name, size in (
        ("queries", q.size(row)),
        ("keys", k.size(key)),
        *(("batch or heads", s) for s in facts.candidate.lead),
    ):
        if known(size == 0):
            return Rejection(Reason.SHAPE, f"{name}: the size is 0; kernels need at least 1")
    return None


def heads(facts: Known) -> Rejection | None:
    """Lead axes broadcast; grouped query heads are a multiple of the key heads."""
    candidate = facts.candidate
    if not candidate.complete:
        return None
    for axis, full in enumerate(candidate.lead):
        for name, operand in facts.operands.items():
            own = operand.size(axis)
            if axis not in operand.axes or known(own == 1) or _equal(facts, own, full):
                continue
            if candidate.grouped and axis == len(candidate.lead) - 1 and name != "q":
                continue
            return Rejection(
                Reason.HEADS, f"{name} has size {own} on batch or head axis {axis}, the scores have {full}"
            )
    return _groups(facts) if candidate.grouped else None


def _groups(facts: Known) -> Rejection | None:
    candidate, axis = facts.candidate, len(facts.candidate.lead) - 1
    if axis < 0:
        return Rejection(Reason.HEADS, "enable_gqa needs a head axis; q has 2 dims")
    key_heads, value_heads = facts.operands["k"].size(axis), facts.operands["v"].size(axis)
    if not _equal(facts, key_heads, value_heads):
        return Rejection(Reason.HEADS, f"k has {key_heads} heads, v has {value_heads}; they must be equal")
    if hint(candidate.lead[axis]) is None or hint(candidate.lead[axis]) % hint(key_heads):
        return Rejection(Reason.HEADS, f"{candidate.lead[axis]} query heads are no multiple of {key_heads} key heads")
    return None


def head_dim(facts: Known) -> Rejection | None:
    """Kernels are made for one head dim, so it must be a number when the graph is compiled."""
    if not facts.candidate.complete:
        return None
    for name, size in zip(("q and k", "v"), facts.head_dims(), strict=True):
        if hint(size) is None:
            return Rejection(Reason.HEAD_DIM, f"the head dim of {name} is {size}, which is not known when compiling")
    if not _equal(facts, facts.operands["k"].size(INNER), facts.operands["q"].size(INNER)):
        sizes = f"{facts.operands['k'].size(INNER)} and {facts.operands['q'].size(INNER)}"
        return Rejection(Reason.HEAD_DIM, f"k and q have head dims {sizes}; they must be equal")
    return None


def capability(facts: Known) -> Rejection | None:
    """The planner's own answer: nothing is rewritten that cannot launch."""
    dims = tuple(hint(size) for size in facts.head_dims())
    if not facts.candidate.complete or None in dims or facts.dtype not in DTYPES:
        return None
    problem = Problem(
        dtype=_plain(facts.dtype),
        qk_head_dim=int(dims[0]),
        v_head_dim=int(dims[1]),
        has_lower=facts.has_lower,
        has_upper=facts.has_upper,
        key_mask=facts.key_mask,
    )
    rejected = supported(problem, APPLE)
    return None if rejected is None else Rejection(Reason[rejected.limit], rejected.message)


def enabled(facts: Known) -> Rejection | None:
    """The user's choice of what to look for."""
    if facts.candidate.kind in facts.options.patterns:
        return None
    text = f'kind "{facts.candidate.kind}" is not among attention.patterns {facts.options.patterns}'
    return Rejection(Reason.DISABLED, text)


def length_preferred(facts: Known) -> Rejection | None:
    """A preference, so it looks at the hint and leaves no guard."""
    if not facts.candidate.complete or not facts.options.min_seq_len:
        return None
    keys = hint(facts.operands["k"].size(facts.candidate.key))
    if keys is None or keys >= facts.options.min_seq_len:
        return None
    return Rejection(Reason.SHORT, f"{keys} keys; attention.min_seq_len is {facts.options.min_seq_len}")


GUARDS: tuple[Guard, ...] = (
    device, layout, dtype, rank, lengths, heads, head_dim, capability, enabled, length_preferred,
)  # fmt: skip


def rejections(facts: Known) -> Iterator[Rejection]:
    """The noes of all guards."""
    return (no for guard in GUARDS if (no := guard(facts)) is not None)


def _equal(facts: Known, left: Any, right: Any) -> bool:
    """Equal for all sizes, or for the example's; eager raises for other ones (two symbols for the lengths of k and
    v).
    """
    if known(left == right):
        return True
    if hint(left) is None or hint(left) != hint(right):
        return False
    facts.assumed.append(left == right)
    return True


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _either(names: Any) -> str:
    listed: list[str] = list(names)
    return listed[0] if len(listed) == 1 else ", ".join(listed[:-1]) + " or " + listed[-1]

"""Is it worth it? What `tune` measured on this machine decides, where the user asked for that: policy "auto"."""

from __future__ import annotations

import torch

from ..config import Options
from ..errors import Reason, Rejection
from ..spec import AttentionSpec
from ..tuning.current import current
from ..tuning.results import MANUAL, SDPA
from ..tuning.shape import Shape
from .candidate import Candidate
from .nodes import hint, value


def slower_than_stock(candidate: Candidate, spec: AttentionSpec, options: Options) -> Rejection | None:
    """A preference: it looks at hints and leaves no guard. Without a measurement near this one it says nothing."""
    if options.policy != "auto":
        return None
    shape = shape_of(spec)
    if shape is None:
        return None
    direction = "training" if _wants_gradient(candidate) else "forward"
    stock = MANUAL if candidate.kind == "manual" else SDPA
    slower = current().results.slower_than_stock(shape, direction, stock)
    return None if slower is None else Rejection(Reason.SLOWER, slower)


def shape_of(spec: AttentionSpec) -> Shape | None:
    """The shape at the sizes of this call, symbolic ones by their hints; None where one has none."""
    sizes = [hint(size) for size in (spec.batch, spec.heads, spec.kv_heads, spec.q_len, spec.kv_len)]
    lower, upper = (None if bound is None else hint(bound) for bound in (spec.band.lower, spec.band.upper))
    if None in sizes or (lower is None) != (spec.band.lower is None) or (upper is None) != (spec.band.upper is None):
        return None
    batch, heads, kv_heads, q_len, kv_len = map(int, sizes)
    dtype = str(spec.dtype).removeprefix("torch.")
    return Shape(dtype, batch, heads, kv_heads, q_len, kv_len, spec.qk_head_dim, spec.v_head_dim, lower, upper)


def _wants_gradient(candidate: Candidate) -> bool:
    operands = (candidate.q, candidate.k, candidate.v)
    examples = (value(operand.node) for operand in operands if operand is not None)
    return torch.is_grad_enabled() and any(getattr(example, "requires_grad", False) for example in examples)

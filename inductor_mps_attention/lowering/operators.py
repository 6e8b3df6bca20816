"""Lowerings of flash_forward and flash_backward: outputs are Inductor's own buffers, kernels are called directly.

What has no kernel here (another device, a symbolic head dim) stays an opaque call of the operator.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import sympy
from torch._inductor.lowering import fallback_handler, register_lowering
from torch._inductor.virtualized import V

from inductor_mps_attention.codegen import Rejected, supported

from ..operators import flash_backward, flash_forward
from . import joins
from .kernels import Attention, add_backward, add_forward
from .operands import contiguous, dense_rows, empty, empty_like_fake, in_memory, simplified
from .packing import packings

_GRADIENTS = ("grad_q", "grad_k", "grad_v")


@functools.cache
def register() -> None:
    """Tells Inductor about both lowerings, once in a process."""
    register_lowering(flash_forward, type_promotion_kind=None)(_lower_forward)
    register_lowering(flash_backward, type_promotion_kind=None)(_lower_backward)


def _lower_forward(
    q: Any, k: Any, v: Any, key_mask: Any, scale: float, lower: Any, upper: Any, logsumexp: bool = True
) -> Any:
    if not _has_kernels(q, v, scale):
        return _opaque(flash_forward, q, k, v, key_mask, scale, lower, upper, logsumexp)
    fake_out, fake_logsumexp = V.graph.current_node.meta["val"]
    boxes = _inputs(q, k, v, key_mask) | {"out": empty_like_fake(fake_out)}
    read = _read_outputs(2)
    if read[1]:
        boxes["logsumexp"] = empty_like_fake(fake_logsumexp)
    add_forward(Attention(boxes, float(scale), *_bounds(lower, upper)), logsumexp=read[1] and logsumexp)
    return boxes["out"], boxes.get("logsumexp")


def _lower_backward(
    grad_out: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    logsumexp: Any,
    key_mask: Any,
    scale: float,
    lower: Any,
    upper: Any,
    output_mask: Sequence[bool],
) -> Any:
    if not _has_kernels(q, v, scale):
        return _opaque(flash_backward, grad_out, q, k, v, out, logsumexp, key_mask, scale, lower, upper, output_mask)
    wanted = [mask and read for mask, read in zip(output_mask, _read_outputs(3), strict=True)]
    packed = _packed_gradients()
    boxes = _inputs(q, k, v, key_mask)
    boxes |= {"grad_out": dense_rows(grad_out), "out": dense_rows(out), "logsumexp": contiguous(logsumexp)}
    nothing = empty([sympy.Integer(0)], None, boxes["q"].get_dtype(), boxes["q"].get_device())
    fakes = V.graph.current_node.meta["val"]
    grads = [
        (packed.get(index) or empty_like_fake(fake)) if want else nothing
        for index, (fake, want) in enumerate(zip(fakes, wanted, strict=True))
    ]
    boxes |= {name: grad for name, grad, want in zip(_GRADIENTS, grads, wanted, strict=True) if want}
    add_backward(Attention(boxes, float(scale), *_bounds(lower, upper)), (wanted[0], wanted[1], wanted[2]))
    return tuple(grads)


def _packed_gradients() -> dict[int, Any]:
    """Gradients that have their place in a tensor that joins them, by index; their boxes are views of it."""
    if not joins.register():
        return {}
    boxes: dict[int, Any] = {}
    for packing in packings(V.graph.current_node):
        boxes |= joins.allocate(packing)
    return boxes


def _inputs(q: Any, k: Any, v: Any, key_mask: Any) -> dict[str, Any]:
    boxes = {"q": dense_rows(q), "k": dense_rows(k), "v": dense_rows(v)}
    return boxes if key_mask is None else boxes | {"key_mask": in_memory(key_mask)}


def _bounds(lower: Any, upper: Any) -> tuple[sympy.Expr | None, sympy.Expr | None]:
    return None if lower is None else simplified(lower), None if upper is None else simplified(upper)


def _has_kernels(q: Any, v: Any, scale: Any) -> bool:
    if q.get_device().type != "mps" or not isinstance(scale, (int, float)):
        return False
    problem = Attention({"q": q, "v": v}, float(scale), None, None).problem
    return problem is not None and not isinstance(supported(problem), Rejected)


def _read_outputs(count: int) -> list[bool]:
    """Which outputs of the node that is being lowered somebody reads."""
    taken = {user.args[1] for user in V.graph.current_node.users if user.users}
    return [index in taken for index in range(count)]


def _opaque(operator: Any, *args: Any) -> Any:
    return fallback_handler(operator, add_to_fallback_set=False)(*args)

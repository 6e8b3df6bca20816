"""Shapes and strides of what the operators return. The fakes, the kernels' launch and the reference all ask here.

The backward graph is traced with the strides of the fakes, so real outputs must have exactly these.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false


def empty_out(q: Tensor, v: Tensor) -> Tensor:
    """The output, (batch, heads, queries, v_head_dim), in q's order of heads and queries.

    A q that is a transposed view of (batch, queries, heads, head_dim) gives an output of that memory order, so that
    `out.transpose(1, 2).reshape(batch, queries, -1)` after it stays a view.
    """
    batch, heads, queries, _ = q.shape
    if _queries_outside_heads(q):
        return q.new_empty(batch, queries, heads, v.shape[-1]).transpose(1, 2)
    return q.new_empty(batch, heads, queries, v.shape[-1])


def empty_logsumexp(q: Tensor) -> Tensor:
    """(batch, heads, queries), contiguous: float32, or float64 for the float64 reference."""
    return q.new_empty(q.shape[:-1], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)


def no_logsumexp(q: Tensor) -> Tensor:
    """What stands for a logsumexp that is not wanted: no elements, in the dtype that it would have."""
    return q.new_empty(0, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)


def empty_grad(tensor: Tensor) -> Tensor:
    """The gradient of `tensor`: as `empty_like` lays it out, if that leaves the last dim dense, else contiguous.

    The kernels write rows. `empty_like` of a transposed tensor would keep its strided last dim.
    """
    grad = torch.empty_like(tensor)
    return grad if guard_or_false(grad.stride(-1) == 1) else tensor.new_empty(tensor.shape)


def dense_rows(tensor: Tensor) -> Tensor:
    """The tensor with a last dim of stride 1, copied only where it has another."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _queries_outside_heads(q: Tensor) -> bool:
    # Data-dependent lengths cannot be guarded on. What is unknown then is whether a dense q has no elements at all.
    return guard_or_false(q.stride(1) < q.stride(2))

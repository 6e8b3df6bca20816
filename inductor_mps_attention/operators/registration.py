"""Schemas, fakes, gradients and vmap of the operators; the CPU kernels are the reference, the MPS kernels are Metal.

`Library.define` and `impl`, not `torch.library.custom_op`, whose wrapper costs 40 us a call where this costs 8.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import DoubleBackwardUnsupported
from . import layout, metal, reference
from .checks import check_backward, check_forward
from .transforms import refuse_tangents

# The fakes derive the strides of the results from those of the inputs, so Inductor must not change them.
_TAGS = (torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag)

library = torch.library.Library("mps_attention", "DEF")
library.define(
    "flash_forward(Tensor q, Tensor k, Tensor v, Tensor? key_mask, float scale, SymInt? lower, SymInt? upper,"
    " bool logsumexp=True) -> (Tensor out, Tensor logsumexp)",
    tags=_TAGS,
)
library.define(
    "flash_backward(Tensor grad_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor logsumexp, Tensor? key_mask,"
    " float scale, SymInt? lower, SymInt? upper, bool[3] output_mask) -> (Tensor dq, Tensor dk, Tensor dv)",
    tags=_TAGS,
)

flash_forward = torch.ops.mps_attention.flash_forward.default
"""flash_forward(q, k, v, key_mask, scale, lower, upper, logsumexp=True) -> (out, logsumexp)

q (batch, heads, queries, head_dim), k (batch, kv_heads, keys, head_dim), v (batch, kv_heads, keys, v_head_dim), all
float32, float16 or bfloat16 (on the CPU float64 too); heads a multiple of kv_heads. key_mask: bool (batch, keys), True
where the key is seen, or None. Key j is seen from query i iff lower <= j - i <= upper, None being unbounded. out
(batch, heads, queries, v_head_dim) in q's dtype; logsumexp (batch, heads, queries) float32, natural log of
sum_j exp(scale * q_i . k_j). A row that sees no key gives 0 and -inf. logsumexp has no gradient. With logsumexp=False,
which a call that needs gradients refuses, it is an empty tensor and nothing is written.
"""

flash_backward = torch.ops.mps_attention.flash_backward.default
"""flash_backward(grad_out, q, k, v, out, logsumexp, key_mask, scale, lower, upper, output_mask) -> (dq, dk, dv)

Gradients in the dtypes and shapes of q, k, v; those that output_mask leaves out are empty tensors. Bitwise
deterministic.
"""

_Bound = int | None


def _forward_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    scale: float,
    lower: _Bound,
    upper: _Bound,
    logsumexp: bool = True,
) -> tuple[Tensor, Tensor]:
    refuse_tangents(q, k, v)
    check_forward(q, k, v, key_mask, scale)
    out, statistics = reference.forward(q, k, v, key_mask, scale, lower, upper)
    return out, statistics if logsumexp else layout.no_logsumexp(q)


def _backward_cpu(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    key_mask: Tensor | None,
    scale: float,
    lower: _Bound,
    upper: _Bound,
    output_mask: list[bool],
) -> tuple[Tensor, ...]:
    check_forward(q, k, v, key_mask, scale)
    check_backward(grad_out, q, v, out, logsumexp)
    grads = reference.backward(grad_out, q, k, v, out, logsumexp, key_mask, scale, lower, upper)
    return tuple(grad if wanted else grad.new_empty(0) for grad, wanted in zip(grads, output_mask, strict=True))


library.impl("flash_forward", _forward_cpu, "CPU")
library.impl("flash_backward", _backward_cpu, "CPU")
library.impl("flash_forward", metal.forward, "MPS")
library.impl("flash_backward", metal.backward, "MPS")


@torch.library.register_fake("mps_attention::flash_forward", lib=library)
def _forward_fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    scale: float,
    lower: _Bound,
    upper: _Bound,
    logsumexp: bool = True,
) -> tuple[Tensor, Tensor]:
    check_forward(q, k, v, key_mask, scale)
    metal.check_supported(q, v)
    return layout.empty_out(q, v), layout.empty_logsumexp(q) if logsumexp else layout.no_logsumexp(q)


@torch.library.register_fake("mps_attention::flash_backward", lib=library)
def _backward_fake(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    key_mask: Tensor | None,
    scale: float,
    lower: _Bound,
    upper: _Bound,
    output_mask: list[bool],
) -> tuple[Tensor, ...]:
    check_forward(q, k, v, key_mask, scale)
    check_backward(grad_out, q, v, out, logsumexp)
    metal.check_supported(q, v)
    return tuple(layout.empty_grad(t) if m else t.new_empty(0) for t, m in zip((q, k, v), output_mask, strict=True))


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, key_mask, ctx.scale, ctx.lower, ctx.upper, wanted = inputs
    if not wanted:
        raise ValueError("logsumexp=False in a call that needs gradients: the backward reads it")
    out, logsumexp = output
    ctx.save_for_backward(q, k, v, out, logsumexp, key_mask)
    ctx.mark_non_differentiable(logsumexp)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad_out: Tensor | None, grad_logsumexp: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad_out is None:
        return (None,) * 8
    q, k, v, out, logsumexp, key_mask = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[:3])
    grads = flash_backward(grad_out, q, k, v, out, logsumexp, key_mask, ctx.scale, ctx.lower, ctx.upper, wanted)
    return (*(grad if want else None for grad, want in zip(grads, wanted, strict=True)), *(None,) * 5)


def _refuse_double_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    raise DoubleBackwardUnsupported(
        "the gradient of flash attention's gradient is not implemented; compute this part with plain attention"
    )


def _save_nothing(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """The backward's own autograd only raises, so it keeps nothing."""


torch.library.register_autograd(
    "mps_attention::flash_forward", _differentiate, setup_context=_save_for_backward, lib=library
)
torch.library.register_autograd(
    "mps_attention::flash_backward", _refuse_double_backward, setup_context=_save_nothing, lib=library
)


@torch.library.register_vmap("mps_attention::flash_forward", lib=library)
def _forward_vmap(
    info: Any, in_dims: tuple[int | None, ...], q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, *rest: Any
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    folded = _fold_batch(info.batch_size, in_dims[:4], (q, k, v, key_mask))
    out, logsumexp = flash_forward(*folded, *rest)
    return _unfold_batch(info.batch_size, (out, logsumexp)), (0, 0)


@torch.library.register_vmap("mps_attention::flash_backward", lib=library)
def _backward_vmap(
    info: Any, in_dims: tuple[int | None, ...], *args: Any
) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
    tensors, rest, output_mask = args[:7], args[7:], args[-1]
    grads = flash_backward(*_fold_batch(info.batch_size, in_dims[:7], tensors), *rest)
    grads = tuple(
        _unfold_batch(info.batch_size, (grad,))[0] if wanted else grad
        for grad, wanted in zip(grads, output_mask, strict=True)
    )
    return grads, tuple(0 if wanted else None for wanted in output_mask)


def _fold_batch(size: int, dims: tuple[int | None, ...], tensors: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """Each tensor with the dim that vmap maps moved into its batch: (size, batch, ...) -> (size * batch, ...)."""
    folded: list[Tensor | None] = []
    for tensor, dim in zip(tensors, dims, strict=True):
        if tensor is None:
            folded.append(None)
        elif dim is None:
            folded.append(tensor.unsqueeze(0).expand(size, *tensor.shape).flatten(0, 1))
        else:
            folded.append(tensor.movedim(dim, 0).flatten(0, 1))
    return folded


def _unfold_batch(size: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor.unflatten(0, (size, tensor.shape[0] // max(size, 1))) for tensor in tensors)

"""Transforms that the operators have no rule for: they are refused, where PyTorch would drop tangents silently."""

from __future__ import annotations

from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.autograd import forward_ad

from ..errors import UnsupportedAttention

_DIFFERENTIATING = (TransformType.Grad, TransformType.Jvp)


def functorch_differentiates() -> bool:
    """Is a `torch.func` grad, vjp or jvp level active? vmap levels do no harm: the operators have rules for them."""
    stack = get_interpreter_stack()
    return stack is not None and any(level.key() in _DIFFERENTIATING for level in stack)


def refuse_tangents(*tensors: Tensor | None) -> None:
    """Raises where a tensor carries a forward-mode tangent.

    PyTorch asks an operator's autograd only where something requires grad; a tangent alone would be dropped.
    """
    if forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if tensor is not None and _may_have_tangent(tensor):
            raise UnsupportedAttention("forward-mode differentiation of flash attention is not implemented")


def _may_have_tangent(tensor: Tensor) -> bool:
    try:
        return forward_ad.unpack_dual(tensor).tangent is not None
    except RuntimeError:
        # Compiled code calls operators below autograd, where PyTorch asserts and does not tell: no level may be active.
        return True

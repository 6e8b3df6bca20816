"""The argument table of each kernel: tensors, integers and the scale, in order.

One table gives both sides: the declarations in the Metal text and the integers that the host packs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .limits import MAX_BOUND, MAX_LENGTH
from .problem import DType, Role

if TYPE_CHECKING:
    from .plan import KernelPlan


@dataclass(frozen=True)
class Buffer:
    """One tensor argument. Tensors of float32 row statistics are contiguous (batch, heads, q_len)."""

    name: str
    dtype: str
    metal_type: str
    writable: bool
    strided: bool
    """Whether its (batch, head, row) strides are parameters; the stride of the last dim is always 1."""


@dataclass(frozen=True)
class Parameter:
    """One integer of `constant long* params`: its place is its index in the plan's tuple."""

    name: str
    metal_type: str
    read: bool
    """Whether this role's text reads it; every role takes all sizes, so that a caller has one dict."""


SIZES = ("batch", "heads", "kv_heads", "q_len", "kv_len")
STRIDE_AXES = ("batch", "head", "row")

_INPUTS = {
    Role.FORWARD: ("q", "k", "v"),
    Role.BACKWARD_DELTA: ("out", "grad_out"),
    Role.BACKWARD_DQ: ("q", "k", "v", "grad_out", "logsumexp", "delta"),
    Role.BACKWARD_DKV: ("q", "k", "v", "grad_out", "logsumexp", "delta"),
}
_OUTPUTS = {
    Role.FORWARD: ("out", "logsumexp"),
    Role.BACKWARD_DELTA: ("delta",),
    Role.BACKWARD_DQ: ("grad_q",),
    Role.BACKWARD_DKV: ("grad_k", "grad_v"),
}
_STAGED = {
    Role.FORWARD: ("k", "v"),
    Role.BACKWARD_DELTA: (),
    Role.BACKWARD_DQ: ("k", "v"),
    Role.BACKWARD_DKV: ("q", "grad_out"),
}
_ROW_STATISTICS = ("logsumexp", "delta")
_SIZES_READ = {
    Role.FORWARD: ("heads", "kv_heads", "q_len", "kv_len"),
    Role.BACKWARD_DELTA: ("heads", "q_len"),
    Role.BACKWARD_DQ: ("heads", "kv_heads", "q_len", "kv_len"),
    Role.BACKWARD_DKV: ("heads", "kv_heads", "q_len", "kv_len"),
}


def vector_loaded(role: Role) -> tuple[str, ...]:
    """The tensors that the role stages by vector loads: `Problem.aligned` is about these alone."""
    return _STAGED[role]


def buffers(role: Role, dtype: DType, *, logsumexp: bool) -> tuple[Buffer, ...]:
    """Tensor arguments in order: inputs, then outputs. `logsumexp`: whether forward has that output."""
    names = [(name, False) for name in _INPUTS[role]]
    names += [(name, True) for name in _OUTPUTS[role] if name != "logsumexp" or logsumexp]
    return tuple(_buffer(name, dtype, writable) for name, writable in names)


def _buffer(name: str, dtype: DType, writable: bool) -> Buffer:
    if name in _ROW_STATISTICS:
        return Buffer(name, "float32", "float", writable, strided=False)
    return Buffer(name, dtype.name, dtype.metal, writable, strided=True)


def parameters(role: Role, tensors: tuple[Buffer, ...], *, has_lower: bool, has_upper: bool) -> tuple[Parameter, ...]:
    """Integer arguments in order: sizes, bounds of the band, three strides in elements of each tensor."""
    table = [Parameter(name, "int", read=name in _SIZES_READ[role]) for name in SIZES]
    if role is not Role.BACKWARD_DELTA:
        bounds = (("lower", has_lower), ("upper", has_upper))
        table += [Parameter(name, "int", read=True) for name, bounded in bounds if bounded]
    for tensor in tensors:
        if tensor.strided:
            table += [Parameter(f"{tensor.name}_{axis}_stride", "long", read=True) for axis in STRIDE_AXES]
    return tuple(table)


def pack(plan: KernelPlan, values: Mapping[str, int]) -> list[int]:
    """The integers of one launch, in the plan's order, for `constant long* params`.

    Takes exactly the plan's parameter names. Raises ValueError for a missing or an unknown name, and for a
    negative size or one beyond MAX_LENGTH.
    """
    names = [parameter.name for parameter in plan.parameters]
    if values.keys() != set(names):
        missing = [name for name in names if name not in values]
        unknown = [name for name in values if name not in names]
        raise ValueError(f"parameters of {plan.entry}: missing {missing}, unknown {unknown}")
    return [_checked(name, values[name]) for name in names]


def _checked(name: str, value: int) -> int:
    if name in SIZES and not 0 <= value <= MAX_LENGTH:
        raise ValueError(f"{name} is {value}; kernels take 0 to {MAX_LENGTH}")
    if name in ("lower", "upper"):
        return max(-MAX_BOUND, min(value, MAX_BOUND))
    return value

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
    """One tensor argument. Without strides it is contiguous and float32: row statistics of (batch, heads, q_len), or
    what the parts of a split leave of each row."""

    name: str
    dtype: str
    metal_type: str
    writable: bool
    axes: tuple[str, ...]
    """The axes whose strides are parameters, outermost first; the stride of a head dim is always 1."""

    @property
    def strided(self) -> bool:
        return bool(self.axes)


@dataclass(frozen=True)
class Parameter:
    """One integer of `constant long* params`: its place is its index in the plan's tuple."""

    name: str
    metal_type: str
    read: bool
    """Whether this role's text reads it; every role takes all sizes, so that a caller has one dict."""


SIZES = ("batch", "heads", "kv_heads", "q_len", "kv_len")
ROW_AXES = ("batch", "head", "row")
KEY_MASK_AXES = ("batch", "key")

_INPUTS = {
    Role.FORWARD: ("q", "k", "v"),
    Role.BACKWARD_DELTA: ("out", "grad_out"),
    Role.BACKWARD_DQ: ("q", "k", "v", "grad_out", "logsumexp", "delta"),
    Role.BACKWARD_DKV: ("q", "k", "v", "grad_out", "logsumexp", "delta"),
    Role.BACKWARD_SUM: ("grad_k_parts", "grad_v_parts"),
    Role.DECODE: ("q", "k", "v"),
    Role.DECODE_MERGE: ("part_sums", "part_statistics"),
}
_OUTPUTS = {
    Role.FORWARD: ("out", "logsumexp"),
    Role.BACKWARD_DELTA: ("delta",),
    Role.BACKWARD_DQ: ("grad_q",),
    Role.BACKWARD_DKV: ("grad_k", "grad_v"),
    Role.BACKWARD_SUM: ("grad_k", "grad_v"),
    Role.DECODE: ("part_sums", "part_statistics"),
    Role.DECODE_MERGE: ("out", "logsumexp"),
}
_STAGED = {
    Role.FORWARD: ("k", "v"),
    Role.BACKWARD_DELTA: (),
    Role.BACKWARD_DQ: ("k", "v"),
    Role.BACKWARD_DKV: ("q", "grad_out"),
    Role.BACKWARD_SUM: (),
    Role.DECODE: ("k", "v"),
    Role.DECODE_MERGE: (),
}
PARTS = {"grad_k": "grad_k_parts", "grad_v": "grad_v_parts"}
"""What BACKWARD_DKV writes instead where it splits groups of heads, and BACKWARD_SUM adds up."""
_CONTIGUOUS = ("logsumexp", "delta", "part_sums", "part_statistics", *PARTS.values())
_ROW_SUMS = (Role.BACKWARD_DELTA, Role.BACKWARD_SUM, Role.DECODE_MERGE)
"""Roles that see no keys: neither mask nor band nor scale."""
_SIZES_READ = {
    Role.FORWARD: ("heads", "kv_heads", "q_len", "kv_len"),
    Role.BACKWARD_DELTA: ("heads", "q_len"),
    Role.BACKWARD_DQ: ("heads", "kv_heads", "q_len", "kv_len"),
    Role.BACKWARD_DKV: ("heads", "kv_heads", "q_len", "kv_len"),
    Role.BACKWARD_SUM: ("heads", "kv_heads", "kv_len"),
    Role.DECODE: ("heads", "kv_heads", "q_len", "kv_len"),
    Role.DECODE_MERGE: ("heads", "q_len", "kv_len"),
}


def sees_keys(role: Role) -> bool:
    """Whether the role makes scores, and so takes the scale, the bounds of the band and the key mask."""
    return role not in _ROW_SUMS


def vector_loaded(role: Role) -> tuple[str, ...]:
    """The tensors that the role stages by vector loads: `Problem.aligned` is about these alone."""
    return _STAGED[role]


def buffers(
    role: Role,
    dtype: DType,
    *,
    logsumexp: bool,
    key_mask: bool = False,
    key_grad: bool = True,
    value_grad: bool = True,
    parts: bool = False,
) -> tuple[Buffer, ...]:
    """Tensor arguments in order: inputs, the key mask, outputs.

    `logsumexp`: whether forward has that output; `key_grad`, `value_grad`: which outputs BACKWARD_DKV has, and `parts`
    whether these are parts; BACKWARD_SUM has the same.
    """
    unwanted = {"logsumexp"} if role in (Role.FORWARD, Role.DECODE_MERGE) and not logsumexp else set()
    if role in (Role.BACKWARD_DKV, Role.BACKWARD_SUM):
        unwanted |= set() if key_grad else {"grad_k", PARTS["grad_k"], "delta", "v"}  # grad_v depends on no v
        unwanted |= set() if value_grad else {"grad_v", PARTS["grad_v"]}
    names = [(name, False) for name in _INPUTS[role] if name not in unwanted]
    if key_mask and sees_keys(role):
        names.append(("key_mask", False))
    in_place = PARTS if parts and role is Role.BACKWARD_DKV else {}
    names += [(in_place.get(name, name), True) for name in _OUTPUTS[role] if name not in unwanted]
    return tuple(_buffer(name, dtype, writable) for name, writable in names)


def _buffer(name: str, dtype: DType, writable: bool) -> Buffer:
    if name in _CONTIGUOUS:
        return Buffer(name, "float32", "float", writable, axes=())
    if name == "key_mask":
        return Buffer(name, "bool", "bool", writable, axes=KEY_MASK_AXES)
    return Buffer(name, dtype.name, dtype.metal, writable, axes=ROW_AXES)


def parameters(role: Role, tensors: tuple[Buffer, ...], *, has_lower: bool, has_upper: bool) -> tuple[Parameter, ...]:
    """Integer arguments in order: sizes, bounds of the band, the strides in elements of each tensor."""
    table = [Parameter(name, "int", read=name in _SIZES_READ[role]) for name in SIZES]
    if sees_keys(role):
        bounds = (("lower", has_lower), ("upper", has_upper))
        table += [Parameter(name, "int", read=True) for name, bounded in bounds if bounded]
    for tensor in tensors:
        table += [Parameter(name, "long", read=True) for name in stride_parameters(tensor.name)]
    return tuple(table)


def stride_parameters(tensor: str) -> tuple[str, ...]:
    """The parameters that take the outer strides of a tensor argument, outermost first."""
    if tensor in _CONTIGUOUS:
        return ()
    axes = KEY_MASK_AXES if tensor == "key_mask" else ROW_AXES
    return tuple(f"{tensor}_{axis}_stride" for axis in axes)


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

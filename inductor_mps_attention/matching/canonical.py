"""One name for each operation, whatever its spelling: method, function, operator, in place, ATen overload.

A word in a table below stands for `Tensor.word`, `torch.word`, `torch.nn.functional.word`, `torch.special.word`,
`torch.linalg.word`, `operator.word` and `torch.ops.aten.word`, as far as they exist. Targets are compared as objects,
so a user's own function named `softmax` is not taken for torch's. Adding a spelling is adding a word. In-place words
stand beside the pure ones: `memory.writes` tells them apart.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import torch
import torch._functorch.predispatch
import torch.nn.functional as F
from torch.fx import Node


class Op(Enum):
    """The operations that matching tells apart. UNKNOWN is any other."""

    UNKNOWN = auto()
    # Attention and its two products.
    SDPA = auto()
    MHA = auto()
    SOFTMAX = auto()
    SOFTMIN = auto()
    LOG_SOFTMAX = auto()
    MATMUL = auto()
    LINEAR = auto()
    BADDBMM = auto()
    EINSUM = auto()
    DROPOUT = auto()
    # Arithmetic.
    MUL = auto()
    DIV = auto()
    ADD = auto()
    SUB = auto()
    RSUB = auto()
    NEG = auto()
    RECIPROCAL = auto()
    POW = auto()
    EXP = auto()
    SUM = auto()
    LOGSUMEXP = auto()
    AMAX = auto()
    ABS = auto()
    RELU = auto()
    CLAMP = auto()
    CLAMP_MIN = auto()
    CLAMP_MAX = auto()
    FLOOR_DIVIDE = auto()
    REMAINDER = auto()
    CUMSUM = auto()
    DIFF = auto()
    ALL = auto()
    ANY = auto()
    # Same values, perhaps another dtype or other memory.
    CAST = auto()
    COPY = auto()
    DETACH = auto()
    # Views and rearrangements.
    PERMUTE = auto()
    VIEW = auto()
    EXPAND = auto()
    GETITEM = auto()
    SELECT = auto()
    NARROW = auto()
    PIECES = auto()
    OTHER_VIEW = auto()
    REPEAT = auto()
    REPEAT_INTERLEAVE = auto()
    CAT = auto()
    STACK = auto()
    # Masks.
    MASKED_FILL = auto()
    WHERE = auto()
    TRIL = auto()
    TRIU = auto()
    LESS = auto()
    LESS_EQUAL = auto()
    GREATER = auto()
    GREATER_EQUAL = auto()
    EQUAL = auto()
    NOT_EQUAL = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    NOT = auto()
    # Fresh tensors.
    ARANGE = auto()
    ZEROS = auto()
    ONES = auto()
    FULL = auto()
    NEW_FULL = auto()
    SCALAR_TENSOR = auto()
    EMPTY = auto()
    # Not values.
    METADATA = auto()
    REGION = auto()
    FUNCTORCH = auto()


_WORDS: dict[Op, str] = {
    Op.SDPA: "scaled_dot_product_attention",
    Op.SOFTMAX: "softmax _softmax special_softmax",
    Op.SOFTMIN: "softmin",
    Op.LOG_SOFTMAX: "log_softmax _log_softmax special_log_softmax",
    Op.MATMUL: "matmul bmm mm linalg_matmul __matmul__ __rmatmul__ imatmul",
    Op.LINEAR: "linear",
    Op.BADDBMM: "baddbmm",
    Op.EINSUM: "einsum",
    Op.DROPOUT: "dropout dropout_ native_dropout alpha_dropout feature_dropout feature_alpha_dropout dropout1d "
    "dropout2d dropout3d",
    Op.MUL: "mul multiply mul_ multiply_ imul __mul__ __rmul__",
    Op.DIV: "div divide true_divide truediv div_ divide_ true_divide_ itruediv __truediv__",
    Op.ADD: "add add_ iadd __add__ __radd__",
    Op.SUB: "sub subtract sub_ subtract_ isub __sub__",
    Op.RSUB: "rsub __rsub__",
    Op.NEG: "neg negative __neg__",
    Op.RECIPROCAL: "reciprocal",
    Op.POW: "pow __pow__",
    Op.EXP: "exp exp_",
    Op.SUM: "sum",
    Op.LOGSUMEXP: "logsumexp special_logsumexp",
    Op.AMAX: "amax max",
    Op.ABS: "abs absolute __abs__",
    Op.RELU: "relu",
    Op.CLAMP: "clamp clip",
    Op.CLAMP_MIN: "clamp_min maximum",
    Op.CLAMP_MAX: "clamp_max minimum",
    Op.FLOOR_DIVIDE: "floor_divide floordiv __floordiv__",
    Op.REMAINDER: "remainder mod __mod__",
    Op.CUMSUM: "cumsum",
    Op.DIFF: "diff",
    Op.ALL: "all",
    Op.ANY: "any",
    Op.CAST: "to float half bfloat16 double type type_as long int bool _to_copy",
    Op.COPY: "contiguous clone alias lift_fresh lift_fresh_copy",
    Op.DETACH: "detach detach_",
    Op.PERMUTE: "mT transpose swapaxes swapdims permute movedim moveaxis t numpy_T matrix_H adjoint",
    Op.VIEW: "view reshape view_as reshape_as flatten unflatten unsqueeze squeeze _unsafe_view",
    Op.EXPAND: "expand expand_as broadcast_to",
    Op.GETITEM: "getitem __getitem__",
    Op.SELECT: "select",
    Op.NARROW: "narrow slice",
    Op.PIECES: "unbind chunk split tensor_split split_with_sizes",
    Op.OTHER_VIEW: "diagonal unfold as_strided view_as_real view_as_complex real imag ravel",
    Op.REPEAT: "repeat tile",
    Op.REPEAT_INTERLEAVE: "repeat_interleave",
    Op.CAT: "cat concat concatenate",
    Op.STACK: "stack",
    Op.MASKED_FILL: "masked_fill masked_fill_",
    Op.WHERE: "where",
    Op.TRIL: "tril tril_",
    Op.TRIU: "triu triu_",
    Op.LESS: "lt less __lt__",
    Op.LESS_EQUAL: "le less_equal __le__",
    Op.GREATER: "gt greater __gt__",
    Op.GREATER_EQUAL: "ge greater_equal __ge__",
    Op.EQUAL: "eq __eq__",
    Op.NOT_EQUAL: "ne not_equal __ne__",
    Op.AND: "and_ logical_and bitwise_and __and__",
    Op.OR: "or_ logical_or bitwise_or __or__",
    Op.XOR: "xor logical_xor bitwise_xor __xor__",
    Op.NOT: "invert inv logical_not bitwise_not __invert__",
    Op.ARANGE: "arange",
    Op.ZEROS: "zeros zeros_like new_zeros",
    Op.ONES: "ones ones_like new_ones",
    Op.FULL: "full full_like",
    Op.NEW_FULL: "new_full",
    Op.SCALAR_TENSOR: "tensor scalar_tensor",
    Op.EMPTY: "empty empty_like new_empty",
    Op.METADATA: "size dim ndimension numel stride storage_offset sym_size sym_numel sym_stride is_floating_point "
    "_assert_tensor_metadata",
}

_FUNCTIONS: dict[Op, tuple[Any, ...]] = {
    Op.MHA: (F.multi_head_attention_forward,),
    Op.REGION: (
        torch._C._set_grad_enabled,
        torch.amp.autocast_mode._enter_autocast,
        torch.amp.autocast_mode._exit_autocast,
        torch.autograd.grad_mode._enter_inference_mode,
        torch.autograd.grad_mode._exit_inference_mode,
    ),
}
_FUNCTORCH_WORDS = (
    "_grad_increment_nesting _grad_decrement_nesting _jvp_increment_nesting _jvp_decrement_nesting"
    " _vmap_increment_nesting _vmap_decrement_nesting"
)
_METADATA_ATTRIBUTES = frozenset({"shape", "dtype", "device", "ndim", "is_cuda", "is_mps", "requires_grad", "layout"})
# `torch.ops.aten.bool` and the like are conversions to Python scalars, not to tensors; as methods they are casts.
_METHOD_ONLY = frozenset({"float", "half", "bfloat16", "double", "long", "int", "bool", "type", "type_as", "to"})


@functools.cache
def _by_method() -> dict[str, Op]:
    return {word: op for op, words in _WORDS.items() for word in words.split() if hasattr(torch.Tensor, word)}


@functools.cache
def _by_function() -> dict[Any, Op]:
    table: dict[Any, Op] = {}
    for op, words in _WORDS.items():
        for word in words.split():
            homes: tuple[Any, ...] = (torch.Tensor, torch.ops.aten)
            if word not in _METHOD_ONLY:
                homes += (torch, F, torch.special, torch.linalg, operator)
            for home in homes:
                target: Callable[..., Any] | None = getattr(home, word, None)
                if target is not None:
                    table.setdefault(target, op)
    for op, targets in _FUNCTIONS.items():
        table.update(dict.fromkeys(targets, op))
    for home in (torch._C._functorch, torch._functorch.predispatch):
        for word in _FUNCTORCH_WORDS.split():
            target = getattr(home, word, None)
            if target is not None:
                table[target] = Op.FUNCTORCH
    return table


def canonical(node: Any) -> Op:
    """The canonical operation of a node; UNKNOWN for placeholders, foreign functions and anything not in the tables."""
    if not isinstance(node, Node):
        return Op.UNKNOWN
    if node.op == "call_method":
        return _by_method().get(str(node.target), Op.UNKNOWN)
    if node.op != "call_function":
        return Op.UNKNOWN
    if node.target is getattr:
        return _attribute(node.args[1])
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    try:
        return _by_function().get(target, Op.UNKNOWN)
    except TypeError:  # an unhashable callable is nobody's spelling of anything here
        return Op.UNKNOWN


def _attribute(name: Any) -> Op:
    if name in ("mT", "T", "mH", "H"):
        return Op.PERMUTE
    return Op.METADATA if name in _METADATA_ATTRIBUTES else Op.UNKNOWN


def word(node: Node) -> str:
    """The operation's bare name: `mul` of `torch.mul`, `Tensor.mul` and `aten.mul.Tensor`; `mT` of an attribute."""
    if node.target is getattr:
        return str(node.args[1])
    target = getattr(node.target, "overloadpacket", node.target)
    return target if isinstance(target, str) else str(getattr(target, "__name__", target))


def spelling(node: Node) -> str:
    """How the user wrote it, for messages: `softmax`, `tanh`, `aten.bmm.default`."""
    if node.op in ("placeholder", "get_attr", "output"):
        return node.op
    if node.target is getattr:
        return f".{node.args[1]}"
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


PRODUCTS = frozenset({Op.MATMUL, Op.BADDBMM, Op.EINSUM})
# The result may share memory with the first argument.
ALIASES = frozenset(
    {Op.PERMUTE, Op.VIEW, Op.EXPAND, Op.GETITEM, Op.SELECT, Op.NARROW, Op.PIECES, Op.OTHER_VIEW}
    | {Op.CAST, Op.COPY, Op.DETACH}
)
FRESH = frozenset(
    {Op.ARANGE, Op.ZEROS, Op.ONES, Op.FULL, Op.NEW_FULL, Op.SCALAR_TENSOR, Op.EMPTY, Op.WHERE, Op.MASKED_FILL}
    | {Op.TRIL, Op.TRIU, Op.MUL, Op.ADD, Op.SUB, Op.DIV, Op.MATMUL, Op.BADDBMM, Op.SOFTMAX, Op.CAT, Op.REPEAT}
)
COMPARISONS = frozenset({Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL, Op.EQUAL, Op.NOT_EQUAL})

"""What a kernel takes of a core: fragments, pitches, threadgroup arrays and registers, by role and tiling.

The planner's only arithmetic on bytes; the text declares exactly these arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

from .problem import FLOAT32, DType, Role
from .tiles import Tiling

SIMD_WIDTH = 32
FRAGMENT = 8
VECTOR_BYTES = 16
_ALLOCATION = 16  # the compiler rounds each threadgroup array up to 16 bytes


@dataclass(frozen=True)
class ThreadgroupArray:
    """One static array of threadgroup memory."""

    name: str
    metal_type: str
    length: int
    element_size: int

    @property
    def allocated_bytes(self) -> int:
        return -(-self.length * self.element_size // _ALLOCATION) * _ALLOCATION


@dataclass(frozen=True)
class Shape:
    """What bytes depend on beside role and tiling."""

    dtype: DType
    qk_head_dim: int
    v_head_dim: int
    key_grad: bool = True
    """Whether BACKWARD_DKV makes grad_k."""
    value_grad: bool = True
    """Whether BACKWARD_DKV makes grad_v."""


def fragments_of(width: int) -> int:
    """8x8 fragments that a row of `width` elements fills, the last one maybe in part."""
    return -(-width // FRAGMENT)


def part_of(width: int, parts: int) -> int:
    """Fragments of a row of `width` elements that one of `parts` simdgroups has, the last one maybe fewer."""
    return -(-fragments_of(width) // parts)


def columns_of(role: Role, width: int, tiling: Tiling) -> int:
    """Columns of a staged row: whole fragments, in the forward as many for each simdgroup that shares the row."""
    parts = tiling.sharing if role is Role.FORWARD else 1
    return part_of(width, parts) * parts * FRAGMENT


def pitch_of(role: Role, width: int, dtype: DType, tiling: Tiling) -> int:
    """Elements from one staged row to the next; 16 bytes of padding spread the rows over the banks."""
    return columns_of(role, width, tiling) + VECTOR_BYTES // dtype.size


def own_parts(role: Role, tiling: Tiling, shape: Shape) -> int:
    """Simdgroups of a backward kernel that make the same products, each with a part of the head dim of the owned rows.

    Where simdgroups share rows, half of them make scores and half of them the gradients of the weights; for grad_v
    alone all make scores.
    """
    return tiling.sharing if _one(role, shape) == "grad_v" else max(1, tiling.sharing // 2)


def sum_parts(role: Role, tiling: Tiling, shape: Shape) -> int:
    """Simdgroups of a backward kernel that add up parts of the same gradients.

    All that share rows have parts of the only one; of two, grad_v is made by those that make scores, grad_k by the
    others.
    """
    return tiling.sharing if _one(role, shape) else max(1, tiling.sharing // 2)


def _one(role: Role, shape: Shape) -> str:
    """The only gradient that a backward kernel makes, or nothing where it makes two."""
    if role is Role.BACKWARD_DQ:
        return "grad_q"
    return "" if shape.key_grad and shape.value_grad else "grad_k" if shape.key_grad else "grad_v"


def arrays(role: Role, tiling: Tiling, shape: Shape) -> tuple[ThreadgroupArray, ...]:
    """The threadgroup arrays of a kernel, in order."""
    if role is Role.DECODE:
        return _folded(tiling, shape)
    if role in (Role.BACKWARD_DELTA, Role.BACKWARD_SUM, Role.DECODE_MERGE) or tiling.direct:
        return ()
    dtype = shape.dtype
    names = ("query_tile", "grad_tile") if role is Role.BACKWARD_DKV else ("key_tile", "value_tile")
    widths = (shape.qk_head_dim, shape.v_head_dim)
    rows = tiling.tile * (2 if tiling.double_buffered else 1)
    staged = tuple(
        ThreadgroupArray(name, dtype.metal, rows * pitch_of(role, width, dtype, tiling), dtype.size)
        for name, width in zip(names, widths, strict=True)
    )
    if tiling.sharing == 1:
        return staged
    name = "half_scores" if role is Role.FORWARD else "partial_products"
    scores = tiling.row_fragments * FRAGMENT * tiling.tile
    sets = tiling.simdgroups // tiling.sharing
    return (*staged, ThreadgroupArray(name, "float", sets * exchanging(role, tiling, shape) * scores, FLOAT32.size))


def _folded(tiling: Tiling, shape: Shape) -> tuple[ThreadgroupArray, ...]:
    """What half of the simdgroups hand to the other half: sums and row statistics, two elements a lane and fragment."""
    rows = tiling.simdgroups // 2 * tiling.row_fragments
    lengths = {"other_sums": rows * fragments_of(shape.v_head_dim), "other_statistics": rows}
    return tuple(
        ThreadgroupArray(name, "float", length * 2 * SIMD_WIDTH, FLOAT32.size) for name, length in lengths.items()
    )


def exchanging(role: Role, tiling: Tiling, shape: Shape) -> int:
    """Of the simdgroups that share rows, those whose products others read: all, but of two that make one gradient each
    only that which makes scores.
    """
    alone = role is Role.BACKWARD_DKV and tiling.sharing == 2 and not _one(role, shape)
    return 1 if alone else tiling.sharing


def register_bytes(role: Role, tiling: Tiling, fragment: DType, shape: Shape) -> int:
    """Bytes kept a thread: fragments, accumulators and row statistics alive at once."""
    # A lane holds two of the 64 elements of an 8x8 matrix.
    operand, total = 2 * fragment.size, 2 * FLOAT32.size
    if role in (Role.BACKWARD_DELTA, Role.BACKWARD_SUM):
        return total
    if role is Role.DECODE_MERGE:
        return FLOAT32.size * (-(-shape.v_head_dim // SIMD_WIDTH) + 2)
    if role not in (Role.FORWARD, Role.DECODE):
        return _backward_bytes(role, tiling, operand, shape)
    qk, v = part_of(shape.qk_head_dim, tiling.sharing), part_of(shape.v_head_dim, tiling.sharing)
    streamed = tiling.tile // FRAGMENT
    qk = 1 if tiling.reread else qk
    kept = (qk * operand + v * total + streamed * (total + operand) + 8) * tiling.row_fragments
    if tiling.direct:
        # Two keys of each streamed fragment, 16 bytes of each, beside what the staged kernel keeps.
        kept += 2 * streamed * (VECTOR_BYTES // shape.dtype.size) * fragment.size
    return kept


def _backward_bytes(role: Role, tiling: Tiling, operand: int, shape: Shape) -> int:
    total = 2 * FLOAT32.size
    one, shared = _one(role, shape), tiling.sharing > 1
    blocks = tiling.tile // FRAGMENT if shared else tiling.blocks
    own = [part_of(width, own_parts(role, tiling, shape)) for width in (shape.qk_head_dim, shape.v_head_dim)]
    sums = [part_of(width, sum_parts(role, tiling, shape)) for width in (shape.qk_head_dim, shape.v_head_dim)]
    if one == "grad_v":  # needs no v, and its own rows are those of k
        own, sums = own[:1], sums[1:]
    elif one:
        sums = sums[:1]
    statistics = (16 if tiling.once else 8) if role is Role.BACKWARD_DQ else 0
    a_row = (max(own) if shared else sum(own)) * operand + statistics + (max(sums) if shared else sum(sums)) * total
    # Scores and gradients of weights turn into operands, element by element.
    a_row += blocks * (total if shared or one == "grad_v" else max(2 * total, (1 if one else 2) * operand))
    kept = sum(own[:1] if one else own) * operand * blocks if tiling.once and one != "grad_v" else 0
    return a_row * tiling.row_fragments + kept + (0 if role is Role.BACKWARD_DQ else 8 * -(-tiling.tile // SIMD_WIDTH))

"""The arguments of one call -> the struct that an entry takes (native/entry.h), by the rules of
torch.mps.compile_shader: a tensor is its memory, an int 8 bytes, a float 4, a list its packed elements.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from ..metal.arguments import ArgumentCasts, cast_of, pack
from ..metal.errors import ShaderLaunchError

CONSTANT_BYTES = 512
MAX_DYNAMIC_ARRAYS = 8
_ADDRESSES = 4 * (9 + MAX_DYNAMIC_ARRAYS) + 4  # aligned to 8


def is_memory(value: object) -> bool:
    """Whether an argument is memory of the GPU, or nothing, rather than a number or a list of numbers."""
    return value is None or hasattr(value, "data_ptr") or hasattr(value, "__cuda_array_interface__")


def address(value: Any, index: int) -> int:
    """Where a tensor or array starts on the GPU; 0 for None. ShaderLaunchError for memory of the CPU."""
    if value is None:
        return 0
    if hasattr(value, "data_ptr"):
        if not value.is_cuda:
            raise ShaderLaunchError(f"argument {index} is on {value.device}; this engine takes tensors on cuda")
        return int(value.data_ptr())
    return int(value.__cuda_array_interface__["data"][0])


def inlined_bits(values: Sequence[object]) -> int:
    """Bit n for each argument n that is a number or a list."""
    return sum(1 << index for index, value in enumerate(values) if not is_memory(value))


def struct_bytes(buffers: int, inlined: int) -> int:
    """Size of Arguments<buffers, inlined>."""
    return _constants(buffers) + max(1, inlined.bit_count()) * CONSTANT_BYTES


def _constants(buffers: int) -> int:
    return -(-(_ADDRESSES + 8 * buffers) // 16) * 16


def packed(
    values: Sequence[object],
    buffers: int,
    sizes: Sequence[int],
    dynamic: Sequence[int],
    arg_casts: ArgumentCasts,
) -> ctypes.Array[ctypes.c_char]:
    """The struct. `sizes`: groups, group size, threads, three each; `dynamic`: an offset for each threadgroup index."""
    inlined = inlined_bits(values)
    block = ctypes.create_string_buffer(struct_bytes(buffers, inlined))
    struct.pack_into(f"<9I{MAX_DYNAMIC_ARRAYS}I", block, 0, *sizes, *dynamic)
    slot = _constants(buffers)
    for index, value in enumerate(values[:buffers]):
        if not inlined >> index & 1:
            struct.pack_into("<Q", block, _ADDRESSES + 8 * index, address(value, index))
            continue
        number = pack(value, cast_of(arg_casts, index), index)
        if len(number) > CONSTANT_BYTES:
            raise ShaderLaunchError(f"argument {index} has {len(number)} bytes; a list has at most {CONSTANT_BYTES}")
        struct.pack_into(f"<{len(number)}s", block, slot, number)
        slot += CONSTANT_BYTES
    return block

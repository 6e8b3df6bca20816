"""The arguments of one kernel call -> addresses of memory that holds them, by the rules of
torch.mps.compile_shader.

A tensor is its memory from its storage offset on, whatever its strides; a double without dimensions is rounded to
float. An int or bool is 8 bytes, a float 4, a list packed elements of its first one's kind, or the addresses of its
tensors; `arg_casts` names another type for an index ("int32", "fp16", ...) or for all.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import torch

from .errors import ShaderLaunchError
from .launch import MAX_BUFFERS

ArgumentCasts = str | Mapping[int, str] | None

# Far enough apart that an access past one scalar does not reach the next one.
SCALAR_STRIDE = 256

# c10::metal::ErrorMessages: a count, and 30 messages of file, function, text and line.
ERROR_MESSAGES, ERROR_MESSAGE_BYTES, ERROR_FILE, ERROR_FUNCTION, ERROR_TEXT = 30, 512, 0, 128, 256
ERROR_BUFFER_BYTES = 4 + ERROR_MESSAGES * ERROR_MESSAGE_BYTES


def _pack_bfloat16(value: float) -> bytes:
    return struct.pack("<h", int(torch.tensor(value, dtype=torch.bfloat16).view(torch.int16).item()))


def _pack_integer(value: float, size: int) -> bytes:
    """A cast keeps the low bytes; a value that is neither a signed nor an unsigned number of them is a mistake."""
    number = int(value)
    if not -(1 << 8 * size - 1) <= number < 1 << 8 * size:
        raise OverflowError
    return (number % (1 << 8 * size)).to_bytes(size, "little")


_CASTS: dict[str, Callable[[float], bytes]] = {
    "fp16": lambda value: struct.pack("<e", value),
    "bf16": _pack_bfloat16,
    "int32": lambda value: _pack_integer(value, 4),
    "int16": lambda value: _pack_integer(value, 2),
    "int8": lambda value: _pack_integer(value, 1),
    "uint8": lambda value: _pack_integer(value, 1),
}
_UNCAST: dict[str, Callable[[float], bytes]] = {
    "int64": lambda value: struct.pack("<q", value),
    "float": lambda value: struct.pack("<f", value),
}


def pack(value: object, cast: str | None, index: int) -> bytes:
    """The bytes of a number, or of a list of numbers or of tensors. Raises ShaderLaunchError for anything else."""
    values: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
    if is_tensor_list(value):
        return struct.pack(f"<{len(values)}Q", *(tensor.data_ptr() for tensor in values))
    if not values or not all(isinstance(number, (bool, int, float)) for number in values):
        raise ShaderLaunchError(
            f"argument {index} is {_shown(value)}: a kernel takes tensors, numbers, and non-empty lists of numbers "
            "or of tensors"
        )
    kind = "float" if isinstance(values[0], float) else "int64"
    if kind == "int64" and any(isinstance(number, float) for number in values):
        raise ShaderLaunchError(
            f"argument {index} is {value!r}: a list that begins with an int is one of ints; begin with a float"
        )
    convert = _CASTS.get(cast) if cast else _UNCAST[kind]
    if convert is None:
        raise ShaderLaunchError(
            f"argument {index}: Unsupported cast instruction {cast!r}; known are {', '.join(_CASTS)}"
        )
    try:
        return b"".join(convert(number) for number in values)
    except (struct.error, OverflowError, ValueError) as error:
        raise ShaderLaunchError(f"argument {index} is {value!r}, which does not fit in {cast or kind}") from error


_SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def single_precision(args: tuple[object, ...]) -> tuple[object, ...]:
    """The arguments, with tensors without dimensions in the precision that Metal has: PyTorch rounds such a value of a
    double on its way to the device (`mtl_setBuffer`). Inductor passes symbolic floats so.
    """
    return tuple(
        arg.to(_SINGLE[arg.dtype]) if isinstance(arg, torch.Tensor) and arg.dtype in _SINGLE and not arg.dim() else arg
        for arg in args
    )


def is_tensor_list(value: object) -> TypeGuard[Sequence[torch.Tensor]]:
    """Whether an argument is a list of tensors, which a kernel sees as their addresses."""
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(element, torch.Tensor) for element in value)
    )


def _shown(value: object) -> str:
    """A value as a message has it: numpy's scalars look like numbers, so the type is named."""
    return f"{value!r} ({type(value).__module__}.{type(value).__name__})"


def cast_of(arg_casts: ArgumentCasts, index: int) -> str | None:
    if arg_casts is None or isinstance(arg_casts, str):
        return arg_casts
    if not isinstance(arg_casts, Mapping):
        raise ShaderLaunchError(f"arg_casts is {_shown(arg_casts)}; it is a name, or a dict of them by index")
    return arg_casts.get(index)


class ArgumentMemory:
    """Memory of one call for what is not a tensor; reused by later calls of the same kernel."""

    def __init__(self) -> None:
        self._scalars = (ctypes.c_char * (MAX_BUFFERS * SCALAR_STRIDE))()
        self._base = ctypes.addressof(self._scalars)
        self._ints = (ctypes.c_int64 * (MAX_BUFFERS * SCALAR_STRIDE // 8)).from_buffer(self._scalars)
        self._floats = (ctypes.c_float * (MAX_BUFFERS * SCALAR_STRIDE // 4)).from_buffer(self._scalars)
        self._arrays: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.sizes: dict[int, int] = {}
        self.errors: ctypes.Array[ctypes.c_char] | None = None

    def place(self, index: int, value: object, arg_casts: ArgumentCasts) -> int:
        """The address of a number or a list of numbers, given as buffer `index`."""
        if arg_casts is None:
            if type(value) is int and -(1 << 63) <= value < 1 << 63:
                self._ints[index * (SCALAR_STRIDE // 8)] = value
                self.sizes[index] = 8
                return self._base + index * SCALAR_STRIDE
            if type(value) is float:
                self._floats[index * (SCALAR_STRIDE // 4)] = value
                self.sizes[index] = 4
                return self._base + index * SCALAR_STRIDE
        packed = pack(value, cast_of(arg_casts, index), index)
        array = self._arrays[index] = ctypes.create_string_buffer(packed, len(packed))
        self.sizes[index] = len(packed)
        return ctypes.addressof(array)

    def error_buffer(self) -> int:
        """The address of a c10::metal::ErrorMessages without messages."""
        if self.errors is None:
            self.errors = (ctypes.c_char * ERROR_BUFFER_BYTES)()
        ctypes.memset(self.errors, 0, 4)
        return ctypes.addressof(self.errors)

    def reported_errors(self) -> list[str]:
        """What the kernel wrote to its error buffer: "file:line: text", the first 30."""
        if self.errors is None:
            return []
        raw = bytes(self.errors)
        messages = []
        for number in range(min(struct.unpack_from("<I", raw)[0], ERROR_MESSAGES)):
            entry = raw[4 + number * ERROR_MESSAGE_BYTES : 4 + (number + 1) * ERROR_MESSAGE_BYTES]
            file, text = (_text(entry[at : at + 128]) for at in (ERROR_FILE, ERROR_TEXT))
            messages.append(f"{file}:{struct.unpack_from('<I', entry, 508)[0]}: {text}")
        return messages


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", "replace")


def triple(sizes: int | Sequence[int], what: str) -> tuple[int, int, int]:
    """A grid or group size as x, y, z."""
    values = [sizes] if isinstance(sizes, int) else [operator.index(size) for size in sizes]
    if not 1 <= len(values) <= 3 or any(not 0 <= value < 1 << 32 for value in values):
        raise ShaderLaunchError(f"{what} is {sizes}: one to three sizes of at most 2**32 - 1")
    x, y, z = [*values, 1, 1][:3]
    return x, y, z

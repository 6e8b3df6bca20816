"""Python numbers -> Metal literals. The only place that prints a number into a kernel."""

from __future__ import annotations

import math
import struct


def literal(value: bool | int | float) -> str:
    """A Metal literal of the same value: `true`, `7`, `0.125f`, `INFINITY`, `NAN`.

    Ints are 32-bit constants of the text; floats are rounded to float32 and printed in the shortest form that
    reads back the same.
    Raises OverflowError for an int beyond 32 bits and for a finite float beyond float32.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _int(value)
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return _finite(value)


def _int(value: int) -> str:
    # -2**31 has no literal of its own: it is 2**31, a long, with a minus sign.
    if not -(2**31) < value < 2**31:
        raise OverflowError(f"integer literal {value} does not fit in 32 bits")
    return str(value)


def _finite(value: float) -> str:
    rounded = _float32(value)
    if math.isinf(rounded):
        raise OverflowError(f"float literal {value!r} is beyond float32")
    spellings = (f"{rounded:.{digits}g}" for digits in range(1, 10))
    text = next(spelling for spelling in spellings if _float32(float(spelling)) == rounded)
    if not any(mark in text for mark in ".e"):
        text += ".0"
    return text + "f"


def _float32(value: float) -> float:
    """The nearest float32; infinity beyond the largest."""
    try:
        number: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return number

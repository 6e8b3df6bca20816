"""Numbers in the text: what a printed constant reads back as."""

from __future__ import annotations

import math
import struct

import pytest
from inductor_mps_attention.codegen.literals import literal


def bits(value: float) -> bytes:
    return struct.pack("f", value)


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1.0, 0.125, 1 / 3, -1e-45, 1e-45, 3.4028234663852886e38, 16777217.0, 1e10, -2.5e-7]
)
def test_a_float_reads_back_as_the_same_float32(value: float):
    text = literal(value)
    assert text.endswith("f")
    assert "." in text or "e" in text  # `1f` is no Metal literal
    assert bits(float(text[:-1])) == bits(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.inf, "INFINITY"),
        (-math.inf, "-INFINITY"),
        (math.nan, "NAN"),
        (1.0, "1.0f"),
        (7, "7"),
        (-3, "-3"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_spellings(value: float, text: str):  # naga#704, luminal#412: `inf` and `True` in a shader
    assert literal(value) == text


@pytest.mark.parametrize("value", [2**31, -(2**31), 1e39, -1e300])
def test_a_number_that_the_type_cannot_hold_is_an_error(value: float):
    with pytest.raises(OverflowError):
        literal(value)

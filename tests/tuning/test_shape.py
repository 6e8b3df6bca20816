"""Shapes as people write them, and what a measurement of one says of another."""

from __future__ import annotations

import pytest

from inductor_mps_attention.tuning.shape import Shape

LABELS = (
    "f16 B1 H8 S1024 D64 full",
    "bf16 B2 H8/2 S1024 D64 causal",
    "f32 B1 H4 S1x512 D128x64 causal",
    "f16 B1 H8 S1024 D80 window=256",
)


@pytest.mark.parametrize("label", LABELS)
def test_a_label_is_read_as_what_it_says(label: str):
    assert Shape.parse(label).label == label


def test_causal_ends_at_the_last_key():
    assert Shape.parse(LABELS[2]).upper == 511
    windowed = Shape.parse(LABELS[3])
    assert (windowed.lower, windowed.upper) == (-255, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f16 B1 H8 S1024", "lacks qk_head_dim; write it as D64"),
        ("f16 B1 H8 S1024 D64 sideways", "cannot read 'sideways'"),
        ("f64 B1 H8 S1024 D64", "cannot read 'f64'"),
        ("f16 B1 H8/3 S1024 D64", "heads a multiple of kv_heads"),
        ("f16 B0 H8 S1024 D64", "sizes must be 1 or more"),
    ],
)
def test_a_shape_that_cannot_be_read_says_which_word(text: str, message: str):
    with pytest.raises(ValueError, match=message):
        Shape.parse(text)


def test_a_measurement_speaks_for_sizes_up_to_twice_its_own():
    measured = Shape.parse("f16 B1 H8 S1024 D64 causal")

    def distance(text: str) -> float | None:
        return measured.distance(Shape.parse(text))

    assert distance("f16 B1 H8 S1024 D64 causal") == 0
    assert distance("f16 B1 H8 S2048 D64 causal") == 2  # queries and keys
    assert distance("f16 B2 H4 S1024 D64 causal") == 0  # heads in all
    for other in ("S2050 D64 causal", "S1024 D64 full", "S1024 D80 causal", "S1024 D64 window=64"):
        assert distance(f"f16 B1 H8 {other}") is None
    assert distance("bf16 B1 H8 S1024 D64 causal") is None

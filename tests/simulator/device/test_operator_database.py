"""A part of PyTorch's operator database on the device; `python -m benchmarks.op_db` runs the whole of it."""

from __future__ import annotations

import pytest
import torch

from benchmarks.op_db import KNOWN_IN_EAGER, KNOWN_WHEN_COMPILED, check, database, name_of

OPERATORS = database()
EVERY_SIXTEENTH = OPERATORS[5::16]
EVERY_FORTIETH = OPERATORS[3::40]


@pytest.mark.parametrize("op", EVERY_SIXTEENTH, ids=name_of)
def test_an_operator_in_eager_mode_is_as_on_the_cpu(op):
    outcome = check(op, samples=2)
    assert outcome.verdict != "DIFFERS", outcome.detail


@pytest.mark.parametrize("op", EVERY_FORTIETH, ids=name_of)
def test_an_operator_through_inductor_is_as_on_the_cpu(op):
    with torch._inductor.config.patch(fallback_random=True):
        outcome = check(op, samples=1, compiled=True)
    assert outcome.verdict != "DIFFERS", outcome.detail


def test_the_sample_is_not_empty_of_agreement():
    assert sum(check(op, samples=1).verdict == "agrees" for op in EVERY_SIXTEENTH[:10]) >= 8


def test_known_differences_name_operators_of_the_database():  # a misspelt name would excuse nothing
    assert {*KNOWN_IN_EAGER, *KNOWN_WHEN_COMPILED} <= {name_of(op) for op in OPERATORS}


class Wrong:
    """An operator that is right on the CPU alone."""

    name, variant_test_name, supports_autograd = "wrong", "", True
    dtypes = (torch.float32,)

    def __init__(self, program):
        self.op = program

    def sample_inputs(self, device, dtype, requires_grad):
        yield type("Sample", (), {"input": torch.ones(2, 3, requires_grad=requires_grad), "args": (), "kwargs": {}})


class DoubledGradient(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 1

    @staticmethod
    def backward(context, grad):
        return grad * 2 if grad.is_mps else grad


@pytest.mark.parametrize(
    ("program", "word"),
    [
        (lambda x: x + 1 if x.is_mps else x, "not close"),
        (DoubledGradient.apply, "not close"),
        (lambda x: (x * 1).t().contiguous().t() if x.is_mps else x * 1, "strides"),
        (lambda x: (x * 1).half() if x.is_mps else x * 1, "dtype"),
        (lambda x: x.cpu(), "a result is on cpu"),
    ],
    ids=["value", "gradient", "strides", "dtype", "device"],
)
def test_a_difference_is_found(program, word):
    outcome = check(Wrong(program), samples=1)
    assert outcome.verdict == "DIFFERS"
    assert word in outcome.detail

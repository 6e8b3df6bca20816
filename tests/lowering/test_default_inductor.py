"""The pass in the default inductor: options of one compilation, and code that was compiled too early."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import inductor_mps_attention as ima


def attend(q: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, q, q)


@pytest.fixture
def q() -> Tensor:
    return torch.randn(1, 2, 33, 16, device="mps")


def test_one_compilation_has_its_own_options(q: Tensor) -> None:
    with ima.registered():
        assert torch.equal(torch.compile(attend, options={"attention.patterns": ("manual",)})(q), attend(q))
        assert ima.stats()["fused"] == 0
        torch._dynamo.reset()
        torch.compile(attend)(q)
        assert ima.stats()["fused"] == 1


def test_a_wrong_option_is_one_sentence(q: Tensor) -> None:
    with (
        ima.registered(),
        pytest.raises(Exception, match="option min_seq_len must be an integer of 0 or more, got 'x'"),
    ):
        torch.compile(attend, options={"attention.min_seq_len": "x"})(q)
    with ima.registered(), pytest.raises(RuntimeError, match=r"attention\.speed"):
        torch.compile(attend, options={"attention.speed": 1})


def test_code_that_was_compiled_too_early_is_named(q: Tensor) -> None:
    torch.compile(attend)(q)
    with pytest.warns(UserWarning, match=r"has compiled attend \(.*test_default_inductor.py:\d+\)"), ima.registered():
        torch.compile(attend)(q)
    assert ima.stats()["fused"] == 0


def test_no_warning_without_a_reason(q: Tensor) -> None:
    """Neither for code of another backend, nor for code that went through the pass, nor after a reset."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="mps_attention")
        torch.compile(attend, backend="mps_attention")(q)
        with ima.registered():
            torch.compile(lambda q: attend(q) + 1)(q)
        with ima.registered():
            pass
        torch.compile(lambda q: attend(q) + 2)(q)
        torch._dynamo.reset()
        with ima.registered():
            pass


def test_the_kernels_are_called_directly(q: Tensor) -> None:
    from torch._inductor.utils import run_and_get_code

    with ima.registered(), torch.no_grad():
        _, (code,) = run_and_get_code(torch.compile(attend), q)
    assert "= load_kernel('forward'" in code
    assert ima.stats()["launches"] == {"forward": 1}

"""The family of chips is that of the tensors' device: plans of another chip than the one that runs them."""

from __future__ import annotations

import pytest
import torch
from inductor_mps_attention.codegen import APPLE, Family

from inductor_mps_attention import runtime
from inductor_mps_attention.operators import flash_forward
from inductor_mps_attention.runtime import device
from tests.support.inputs import Shape, make


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch):
    """Gives the MPS device a name."""

    def name(text: str) -> None:
        monkeypatch.setattr(torch.backends.mps, "get_name", lambda: text)
        device._limits.cache_clear()

    yield name
    device._limits.cache_clear()


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Apple M1", Family.M1),
        ("Apple M2 Ultra", Family.M1),
        ("Apple M3 Pro", Family.M3),
        ("Apple M4 Max", Family.M3),
        ("Apple M5", Family.M5),
        ("Apple M17", Family.M1),  # nothing is known of it: the plans that ask for least
        ("Simulated MPS", Family.M1),
    ],
)
def test_a_device_is_planned_for_by_its_name(named, name: str, family: Family) -> None:
    named(name)
    assert runtime.limits_of(torch.device("mps")).family is family


def test_a_device_without_kernels_is_planned_for_like_the_oldest() -> None:
    assert runtime.limits_of(torch.device("cpu")) == APPLE


def test_a_launch_takes_the_plan_of_the_device(named, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    compile_shader = torch.mps.compile_shader
    monkeypatch.setattr(torch.mps, "compile_shader", lambda text: texts.append(text) or compile_shader(text))
    q, k, v, _ = make(Shape(head_dim=64), torch.float16)
    for name in ("Apple M2", "Apple M4"):
        named(name)
        runtime.clear()
        flash_forward(q, k, v, None, 0.2, None, None)
    runtime.clear()
    assert ["threadgroup element" in text for text in texts] == [True, False]  # M3 and M4 read straight from memory

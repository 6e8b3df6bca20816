"""Shaders on their way from PyTorch to the Metal engine: the text, the arguments, the options in force."""

from __future__ import annotations

import pytest
import torch

from inductor_mps_attention import simulator
from inductor_mps_attention.simulator import metal

from .support import CountingEngine

SOURCE = "kernel void generated_kernel(device float* out) {}"


@pytest.fixture
def engine(monkeypatch):
    counting = CountingEngine()
    monkeypatch.setattr(metal, "compile_shader", counting.compile_shader)
    simulator.reset_shaders()
    return counting


def test_the_text_of_a_user_reaches_the_engine_with_its_headers(engine):
    torch.mps.compile_shader("#include <c10/metal/utils.h>\n" + SOURCE)
    ((text, keywords),) = engine.compiled
    assert SOURCE in text
    assert "namespace c10" in text
    assert keywords == {"check": "off"}
    assert simulator.shaders() == (text,)
    simulator.reset_shaders()
    assert simulator.shaders() == ()


def test_inductor_compiles_and_launches_on_device_memory(engine):
    result = torch.compile(lambda x: (x * 2).sin() + torch.rand_like(x))(torch.zeros(4, device="mps"))
    assert result.tolist() == [1] * 4
    ((_, devices, grid),) = engine.launches
    assert devices[:2] == ["mps", "mps"]
    assert grid["threads"] == [4]
    assert "kernel void generated_kernel" in simulator.shaders()[0]


RACE = """
#include <metal_stdlib>
using namespace metal;
kernel void swap(device float* x, uint i [[thread_position_in_grid]]) { x[i] = x[63 - i]; }
"""


def test_a_kernel_that_was_compiled_before_is_checked_in_the_block_and_only_there():
    """Callers keep their kernels: a check that only new kernels get would pass without checking anything."""
    kernel = torch.mps.compile_shader(RACE).swap
    x = torch.arange(64.0, device="mps")
    kernel(x)
    with simulator.options(check="full"), pytest.raises(simulator.CheckError) as caught:
        kernel(x)
    assert {report.kind for report in caught.value.reports} == {"race"}
    kernel(x)
    assert kernel.max_threads_per_threadgroup == 1024


def test_a_name_that_is_no_kernel_is_an_attribute_error():
    with pytest.raises(AttributeError, match="swap"):
        torch.mps.compile_shader(RACE).swop  # noqa: B018


def test_options_hold_in_the_block_and_end_with_it(engine):
    with simulator.options(check="full", strict=False):
        torch.mps.compile_shader(SOURCE)
        with simulator.options():
            torch.mps.compile_shader(SOURCE)
        torch.mps.compile_shader(SOURCE)
    torch.mps.compile_shader(SOURCE)
    full, off = {"check": "full", "strict": False}, {"check": "off"}
    assert [keywords for _, keywords in engine.compiled] == [full, off, full, off]


def test_only_the_sources_that_are_named_are_checked(engine):
    with simulator.options(check="full", check_only=lambda source: "// ours" in source):
        torch.mps.compile_shader("// ours\n" + SOURCE)
        torch.mps.compile_shader(SOURCE)
    assert [keywords["check"] for _, keywords in engine.compiled] == ["full", "off"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_poisoned_memory_is_nan_in_every_floating_type(dtype):
    with simulator.options(poison=True):
        assert torch.empty(5, dtype=dtype, device="mps").isnan().all()
        assert torch.empty_strided((2, 3), (1, 2), dtype=dtype, device="mps").isnan().all()
        assert torch.zeros(5, dtype=dtype, device="mps").eq(0).all()
        assert torch.empty(3, dtype=torch.int32, device="mps").tolist() == [-1] * 3


def test_poison_ends_with_the_block_even_after_an_error():
    with pytest.raises(ZeroDivisionError), simulator.options(poison=True):
        1 / 0  # noqa: B018
    blocks = [torch.empty(999, device="mps") for _ in range(3)]
    assert not all(block.isnan().all() for block in blocks)


def test_a_cpu_tensor_is_refused_unless_it_is_one_value():
    text = "kernel void k(device float* out, constant float& a, uint i [[thread_position_in_grid]]) { out[i] = a; }"
    kernel, out = torch.mps.compile_shader(text).k, torch.zeros(3, device="mps")
    kernel(out, torch.tensor(2.0))
    assert out.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="Passed CPU tensor to MPS op"):
        kernel(out, torch.ones(1))

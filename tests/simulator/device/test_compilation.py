"""torch.compile on the device, up to Inductor's own Metal code run from its text. The CPU is the reference."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.device_interface import get_interface_for_device
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache
from torch._subclasses.fake_tensor import FakeTensorMode

from inductor_mps_attention import simulator

from .support import SmallModel, assert_same, gradients, tokens


@pytest.fixture
def models():
    on_cpu = SmallModel()
    return copy.deepcopy(on_cpu).to("mps"), on_cpu


def assert_same_step(compiled, on_device, on_cpu, length=7):
    batch = tokens(length)
    expected = gradients(on_cpu, on_cpu, batch)
    for got, wanted in zip(gradients(compiled, on_device, batch.to("mps")), expected, strict=True):
        assert_same(got, wanted)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
def test_training_without_code_generation(models, backend):
    assert_same_step(torch.compile(models[0], backend=backend), *models)


def test_one_graph_serves_all_lengths():
    def attend(x):
        return F.scaled_dot_product_attention(x, x, x).square().sum()

    compiled = torch.compile(attend, backend="aot_eager", dynamic=True, fullgraph=True)
    for length in (3, 5, 9):
        there = torch.randn(1, 2, length, 4, device="mps", requires_grad=True)
        here = there.detach().cpu().requires_grad_()
        with torch.compiler.set_stance("fail_on_recompile" if length > 3 else "default"):
            compiled(there).backward()
        attend(here).backward()
        assert_same(there.grad, here.grad)


FACTOR = 16**-0.5


def test_a_float_that_dynamo_makes_symbolic():
    """Inductor hands it to the kernel as a double on the CPU, and declares a float there."""
    x = torch.randn(5, 7)
    compiled = torch.compile(lambda x: x * FACTOR, dynamic=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x.to("mps")).cpu(), x * FACTOR)


def test_fake_tensors_with_gradients():  # the guard of a device that is not there ends the process
    with FakeTensorMode():
        x = torch.randn(1, 3, 4, device="mps", requires_grad=True)
        F.scaled_dot_product_attention(x, x, x).sum().backward()
        assert x.grad.device == torch.device("mps:0")
        assert (x + 1).to("cpu").device.type == "cpu"


def test_the_interface_that_dynamo_and_inductor_ask():
    interface = get_interface_for_device("mps")
    assert interface.is_available()
    assert interface.current_device() == 0
    assert interface.Worker.get_device_properties().multi_processor_count > 0
    assert interface.is_bf16_supported()
    interface.synchronize()


def test_passes_see_the_graph_of_an_mps_build():
    seen = []
    with (
        torch._inductor.config.patch(post_grad_custom_pre_pass=lambda g: seen.extend(str(n.target) for n in g.nodes)),
        torch.no_grad(),
    ):
        torch.compile(lambda q: F.scaled_dot_product_attention(q, q, q) + 1)(torch.randn(1, 2, 4, 8, device="mps"))
    assert "aten._scaled_dot_product_attention_math_for_mps.default" in seen


@pytest.mark.parametrize("dynamic", [False, True])
def test_forward_and_backward_through_metal_text(dynamic):
    def program(x, w, b):
        return F.softmax(F.silu(x @ w + b) * 2, -1).cos().sum()

    def run(function, inputs, device):
        inputs = [t.clone().to(device).requires_grad_() for t in inputs]
        out = function(*inputs)
        out.backward()
        return [out, *(t.grad for t in inputs)]

    simulator.reset_shaders()
    compiled = torch.compile(program, dynamic=dynamic)
    for rows in (6, 9) if dynamic else (6,):
        inputs = [torch.randn(rows, 16), torch.randn(16, 32), torch.randn(32)]
        for got, wanted in zip(run(compiled, inputs, "mps"), run(program, inputs, "cpu"), strict=True):
            assert_same(got, wanted)
    assert len(simulator.shaders()) == 2  # one library for the forward graph, one for the backward


# Such launches carry a buffer that the kernel reports errors in; PyTorch reads it when it next synchronizes.
def test_an_index_out_of_range_in_a_compiled_kernel_is_an_error():
    gather = torch.compile(lambda table, index: table[index] * 2)
    table = torch.arange(5.0, device="mps")
    assert gather(table, torch.tensor([4, 0, -1], device="mps")).tolist() == [8, 0, 8]
    index = torch.tensor([0, 0, 7], device="mps")
    with pytest.raises(RuntimeError, match=r"(?i)index|bounds"):
        (gather(table, index), torch.mps.synchronize())


# A graph whose device or properties cannot be hashed or stored is compiled anew each time, without a word.
def test_a_second_compilation_takes_its_graphs_from_the_caches():
    def hits():
        x = torch.ones(4, device="mps", requires_grad=True)
        y = torch.compile(lambda x: x.sin() * 2)(x)
        y.sum().backward()
        assert_same(y, torch.ones(4).sin() * 2)
        assert_same(x.grad, torch.ones(4).cos() * 2)
        counted = counters["inductor"]["fxgraph_cache_hit"], counters["aot_autograd"]["autograd_cache_hit"]
        torch._dynamo.reset()
        counters.clear()
        return counted

    counters.clear()
    with torch._inductor.config.patch(force_disable_caches=False), fresh_cache():
        assert hits() == (0, 0)
        assert hits() == (2, 1)

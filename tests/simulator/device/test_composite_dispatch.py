"""Attention and norms as a build with MPS dispatches them: a graph traced here is the graph that a Mac traces."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode

from inductor_mps_attention.simulator.device.operators import hidden_by_composites

from .support import SmallModel, assert_same, tokens

FOR_MPS = "aten._scaled_dot_product_attention_math_for_mps.default"


class Calls(TorchDispatchMode):
    """The names of the operators that reach the device."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def attention_masks(name):
    return {"bool": torch.rand(5, 5) > 0.3, "float": torch.randn(2, 1, 5, 5)}.get(name)


@pytest.mark.parametrize("mask", ["none", "bool", "float", "causal"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_values_and_gradients(mask, grad, compiled):
    heads = [torch.randn(2, 4, 5, 8) for _ in range(3)]
    tensor_mask = attention_masks(mask)

    def attention(q, k, v, m):
        return F.scaled_dot_product_attention(q, k, v, m, is_causal=mask == "causal")

    def run(function, device):
        q, k, v = (t.clone().to(device).requires_grad_(grad) for t in heads)
        out = function(q, k, v, None if tensor_mask is None else tensor_mask.to(device))
        if grad:
            out.square().sum().backward()
        return [out, *(t.grad for t in (q, k, v) if grad)]

    there = run(torch.compile(attention, backend="aot_eager") if compiled else attention, "mps")
    for got, wanted in zip(there, run(attention, "cpu"), strict=True):
        torch.testing.assert_close(got.detach().cpu(), wanted.detach(), atol=1e-5, rtol=1e-5)
        assert got.is_mps


def test_grouped_heads():
    q, k = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8)
    out = F.scaled_dot_product_attention(q.to("mps"), k.to("mps"), k.to("mps"), enable_gqa=True)
    assert_same(out, F.scaled_dot_product_attention(q, k, k, enable_gqa=True).contiguous())


@pytest.mark.parametrize(("grad", "dropout", "taken"), [(False, 0.0, True), (True, 0.0, False), (False, 0.5, False)])
def test_the_operator_for_mps_is_taken_without_gradients_and_dropout_only(grad, dropout, taken):
    q = torch.randn(1, 2, 4, 8, device="mps", requires_grad=grad)
    with Calls() as calls:
        F.scaled_dot_product_attention(q, q, q, dropout_p=dropout)
    assert (FOR_MPS in calls.names) == taken
    q = q.detach().requires_grad_()
    with torch.no_grad(), Calls() as calls:
        F.scaled_dot_product_attention(q, q, q)
    assert FOR_MPS in calls.names


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_graph_without_gradients_holds_the_operators_of_an_mps_build(mode):
    model, graphs = SmallModel().to("mps"), []

    def keep_graph(graph, _):
        graphs.append({str(node.target) for node in graph.graph.nodes})
        return make_boxed_func(graph.forward)

    batch = tokens().to("mps")
    with mode():
        compiled = torch.compile(model, backend=aot_autograd(fw_compiler=keep_graph))(batch)
        torch.testing.assert_close(compiled, model(batch))
    assert {FOR_MPS, "aten.linear.default"} <= graphs[0]


def test_a_training_graph_holds_plain_math():
    graphs = []

    def keep_graph(graph, _):
        graphs.append({str(node.target) for node in graph.graph.nodes})
        return make_boxed_func(graph.forward)

    q = torch.randn(1, 2, 4, 8, device="mps", requires_grad=True)
    attend = torch.compile(
        lambda q: F.scaled_dot_product_attention(q, q, q), backend=aot_autograd(fw_compiler=keep_graph)
    )
    attend(q).sum().backward()
    assert FOR_MPS not in graphs[0] | graphs[1]
    assert any("softmax" in name for name in graphs[0])


def test_the_cpu_takes_its_own_attention_still():
    q = torch.randn(1, 2, 4, 8)
    with Calls() as calls:
        F.scaled_dot_product_attention(q, q, q)
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" in calls.names


@pytest.mark.parametrize(
    ("grad", "weighted", "taken"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_the_fused_norm_is_taken_without_gradients_and_with_a_weight_only(grad, weighted, taken):
    x, weight = torch.randn(3, 8), torch.rand(8) if weighted else None
    there = x.to("mps").requires_grad_(grad)
    with Calls() as calls:
        out = F.rms_norm(there, (8,), None if weight is None else weight.to("mps"), 1e-5)
    assert ("aten._fused_rms_norm.default" in calls.names) == taken
    assert_same(out, F.rms_norm(x, (8,), weight, 1e-5))


# A composite kernel comes before a device's fallback: these would reach autograd and tracers in pieces.
@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("native_layer_norm", lambda x: F.layer_norm(x, (8,))),
        ("native_group_norm", lambda x: F.group_norm(x, 2)),
        ("addr", lambda x: torch.addr(x, x[:, 0], x[0])),
    ],
)
def test_an_operator_with_a_kernel_for_mps_is_not_taken_apart(name, program):
    x = torch.randn(4, 8).half()
    with Calls() as calls:
        out = program(x.to("mps"))
    assert [call.split(".")[1] for call in calls.names if "norm" in call or "addr" in call] == [name]
    assert not {"aten.mul.Tensor", "aten.native_batch_norm.default"} & set(calls.names)
    assert torch.equal(out.cpu(), program(x))


def test_no_operator_with_a_kernel_for_mps_is_hidden_by_a_composite():
    assert hidden_by_composites() == []


def test_vmap_of_attention_and_of_norms():
    """vmap has kernels of its own for composite operators, which ask for the device as well."""
    q, k, v = (torch.randn(3, 1, 2, 5, 8) for _ in range(3))
    mapped = torch.func.vmap(F.scaled_dot_product_attention)
    assert_same(mapped(q.to("mps"), k.to("mps"), v.to("mps")), mapped(q, k, v))
    normed = torch.func.vmap(lambda x: F.rms_norm(x, (8,)))
    assert_same(normed(q.to("mps")), normed(q))

"""Training steps in eager: gradients, optimizers, mixed precision, transforms. The CPU is the reference."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from .support import SmallModel, assert_same, gradients, tokens


@pytest.fixture
def models():
    on_cpu = SmallModel()
    return copy.deepcopy(on_cpu).to("mps"), on_cpu


def test_gradients_of_a_model(models):
    on_device, on_cpu = models
    batch = tokens()
    expected = gradients(on_cpu, on_cpu, batch)
    for got, wanted in zip(gradients(on_device, on_device, batch.to("mps")), expected, strict=True):
        assert_same(got, wanted)


@pytest.mark.parametrize("flavour", [{}, {"foreach": True}, {"fused": True}], ids=["plain", "foreach", "fused"])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_optimizers(models, optimizer, flavour):
    optimizers = [optimizer(model.parameters(), lr=1e-2, **flavour) for model in models]
    on_device, on_cpu = models
    for _ in range(3):
        gradients(on_device, on_device, tokens().to("mps"))
        for there, here in zip(on_device.parameters(), on_cpu.parameters(), strict=True):
            here.grad = there.grad.cpu()  # Adam blows up the noise in gradients that are nearly zero
        for each in optimizers:
            each.step()
    for there, here in zip(on_device.parameters(), on_cpu.parameters(), strict=True):
        assert_same(there, here)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_casts_products_and_keeps_sums_in_float32(dtype):
    x = torch.randn(3, 4, device="mps")
    with torch.autocast("mps", dtype=dtype):
        assert torch.is_autocast_enabled("mps")
        assert (x @ x.t()).dtype == dtype
        assert F.linear(x, x).dtype == dtype
        assert F.softmax(x @ x.t(), -1).dtype == torch.float32
        with torch.autocast("mps", enabled=False):
            assert (x @ x.t()).dtype == torch.float32


def test_gradient_scaling_skips_a_step_with_an_overflow():
    scaler, layer = torch.amp.GradScaler("mps", init_scale=8.0), nn.Linear(3, 3).to("mps")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.weight.detach().clone()
    scaler.scale(layer(torch.full((2, 3), float("inf"), device="mps")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight, before)
    assert scaler.get_scale() == 4
    optimizer.zero_grad()
    scaler.scale(layer(torch.ones(2, 3, device="mps")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(layer.weight.detach(), before - 0.1 * 2)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing(use_reentrant):
    x = torch.randn(4, device="mps", requires_grad=True)
    checkpoint(lambda t: t.sin().exp(), x, use_reentrant=use_reentrant).sum().backward()
    here = x.detach().cpu().requires_grad_()
    here.sin().exp().sum().backward()
    assert_same(x.grad, here.grad)


def test_functional_transforms_and_higher_derivatives():
    x = torch.randn(3, 4)

    def loss(t):
        return (t.sin() * t).sum()

    for transform in (
        torch.func.grad(loss),
        torch.func.vmap(torch.func.grad(loss)),
        torch.func.hessian(loss),
    ):
        assert_same(transform(x.to("mps")), transform(x))
    tangent = torch.randn(3, 4)
    there = torch.func.jvp(torch.sin, (x.to("mps"),), (tangent.to("mps"),))[1]
    assert_same(there, torch.func.jvp(torch.sin, (x,), (tangent,))[1])


def test_hooks_and_modes_see_tensors_of_the_device():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            seen.append((str(function), result.device.type))
            return result

    x = torch.ones(2, device="mps", requires_grad=True)
    x.register_hook(lambda grad: grad * 2)
    with Recorder():
        y = x * 3
    y.sum().backward()
    assert seen == [("aten.mul.Tensor", "mps")]
    assert x.grad.tolist() == [6, 6]


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Conv2d(2, 3, 3, stride=2),
        lambda: nn.ConvTranspose1d(8, 2, 3),
        lambda: nn.MaxPool2d(2),
        lambda: nn.BatchNorm2d(2),
        lambda: nn.GroupNorm(1, 2),
        lambda: nn.Linear(6, 2),
        lambda: nn.GRU(6, 3, batch_first=True),
        lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True),
    ],
)
def test_layers_forward_and_backward(layer):
    here = layer()
    there = copy.deepcopy(here).to("mps")
    needs_sequence = isinstance(here, nn.GRU | nn.ConvTranspose1d | nn.TransformerEncoderLayer)
    x = torch.randn(2, 8, 6) if needs_sequence else torch.randn(2, 2, 8, 6)
    inputs = [x.to("mps").requires_grad_(), x.clone().requires_grad_()]
    results = []
    for model, value in zip((there, here), inputs, strict=True):
        result = model(value)
        result = result[0] if isinstance(result, tuple) else result
        result.square().sum().backward()
        results.append([result, value.grad, *(p.grad for p in model.parameters())])
    for got, wanted in zip(*results, strict=True):
        assert_same(got, wanted)

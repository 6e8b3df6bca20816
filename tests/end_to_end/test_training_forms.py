"""Compiled training in the forms in which people train: gradients against float64 eager, launches counted."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import inductor_mps_attention as ima
from inductor_mps_attention.operators import flash_forward
from tests.support import budgets
from tests.support.models import Attention

WIDTH, HEADS, LENGTH = 32, 2, 20
EACH_ONCE = {"forward": 1, "backward_delta": 1, "backward_dq": 1, "backward_dkv": 1}


def block() -> Attention:
    return Attention(WIDTH, HEADS, "manual")


def batch(count: int = 1) -> list[Tensor]:
    return [torch.randn(2, LENGTH, WIDTH) for _ in range(count)]


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).sin().sum()


def compile_step(function: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="mps_attention", **arguments)


def check_gradients(model: nn.Module, oracle: nn.Module, budget: float = budgets.BACKWARD[torch.float32]) -> None:
    """Where the oracle has a gradient the model has the same one, and nowhere else."""
    for (name, got), exact in zip(model.named_parameters(), oracle.parameters(), strict=True):
        assert (got.grad is None) == (exact.grad is None), name
        if exact.grad is not None:
            # A bias of keys shifts all scores of a row alike: its gradient is a part that is 0.
            budgets.check(name, got.grad, exact.grad, budget)


def pair(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """On the device, and its float64 twin on the CPU."""
    return copy.deepcopy(model).to("mps"), model.double()


def launches() -> dict[str, int]:
    return ima.stats()["launches"]


def test_gradient_accumulation() -> None:
    model, oracle = pair(block())
    step = compile_step(loss_of)
    for x in batch(3):
        step(model, x.to("mps")).backward()
        loss_of(oracle, x.double()).backward()
    check_gradients(model, oracle)
    assert launches() == dict.fromkeys(EACH_ONCE, 3)


@pytest.mark.parametrize("frozen", ["qkv", "out"])
def test_frozen_parts(frozen: str) -> None:
    """A frozen projection before the attention needs no gradient of it at all; one behind it does."""
    model, oracle = pair(block())
    for one in (model, oracle):
        getattr(one, frozen).requires_grad_(False)
    (x,) = batch()
    compile_step(loss_of)(model, x.to("mps")).backward()
    loss_of(oracle, x.double()).backward()
    check_gradients(model, oracle)
    assert launches() == ({"forward": 1} if frozen == "qkv" else EACH_ONCE)


def test_an_adapter_on_a_frozen_model() -> None:
    """LoRA: only two small matrices beside the packed projection are trained."""

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = block().requires_grad_(False)
            self.down, self.up = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, 3 * WIDTH, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            qkv = self.base.qkv(x) + self.up(self.down(x))
            q, k, v = (t.unflatten(2, (HEADS, -1)).transpose(1, 2) for t in qkv.chunk(3, 2))
            return self.base.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    model, oracle = pair(Adapted())
    (x,) = batch()
    compile_step(loss_of)(model, x.to("mps")).backward()
    loss_of(oracle, x.double()).backward()
    check_gradients(model, oracle)
    assert launches() == EACH_ONCE


def test_tied_keys_and_values() -> None:
    def tied(q: Tensor, kv: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, kv, kv).sin().sum()

    q, kv = (torch.randn(2, HEADS, LENGTH, 16) for _ in range(2))
    own = [t.to("mps").requires_grad_() for t in (q, kv)]
    exact = [t.double().requires_grad_() for t in (q, kv)]
    compile_step(tied)(*own).backward()
    tied(*exact).backward()
    for name, got, oracle in zip(("dq", "dkv"), own, exact, strict=True):
        budgets.check(name, got.grad, oracle.grad, budgets.BACKWARD[torch.float32])
    assert launches() == EACH_ONCE


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_computes_the_forward_twice(use_reentrant: bool) -> None:
    model, oracle = pair(block())
    (x,) = batch()

    def checkpointed(model: nn.Module, x: Tensor) -> Tensor:
        return checkpoint(model, x, use_reentrant=use_reentrant).sin().sum()

    own = x.to("mps").requires_grad_()  # the reentrant kind needs an input with a gradient
    compile_step(checkpointed)(model, own).backward()
    loss_of(oracle, x.double()).backward()
    check_gradients(model, oracle)
    assert launches() == EACH_ONCE | {"forward": 2}


def keep_attention(_context: Any, operator: Any, *_arguments: Any, **_keywords: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator is flash_forward else CheckpointPolicy.PREFER_RECOMPUTE


def test_selective_checkpointing_that_names_the_operator_keeps_its_result() -> None:
    def checkpointed(model: nn.Module, x: Tensor) -> Tensor:
        contexts = functools.partial(create_selective_checkpoint_contexts, keep_attention)
        return checkpoint(model, x, use_reentrant=False, context_fn=contexts).sin().sum()

    model, oracle = pair(block())
    (x,) = batch()
    compile_step(checkpointed)(model, x.to("mps")).backward()
    loss_of(oracle, x.double()).backward()
    check_gradients(model, oracle)
    assert launches() == EACH_ONCE


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_with_a_gradient_scaler(dtype: torch.dtype) -> None:
    model, oracle = pair(block())
    plain = copy.deepcopy(model)
    scaler = torch.amp.GradScaler("mps", init_scale=64.0, enabled=dtype is torch.float16)
    (x,) = batch()

    def step(model: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("mps", dtype):
            return loss_of(model, x)

    for function, one in ((compile_step(step), model), (step, plain)):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.0)
        scaler.scale(function(one, x.to("mps"))).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    loss_of(oracle, x.double()).backward()
    for (name, got), eager, exact in zip(
        model.named_parameters(), plain.parameters(), oracle.parameters(), strict=True
    ):
        allowed = max(1.5 * budgets.relative_error(eager.grad, exact.grad), budgets.BACKWARD[dtype])
        budgets.check(name, got.grad, exact.grad, allowed)
    assert launches() == EACH_ONCE


@pytest.mark.parametrize("implementation", ["foreach", "fused"])
def test_optimizers(implementation: str) -> None:
    model, oracle = pair(block())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **{implementation: True})
    train(model, optimizer, optimizer.step, oracle, torch.optim.AdamW(oracle.parameters(), lr=1e-2))


def test_a_compiled_optimizer_step() -> None:
    model, oracle = pair(block())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    update = torch.compile(optimizer.step, backend="mps_attention")
    train(model, optimizer, update, oracle, torch.optim.SGD(oracle.parameters(), lr=1e-2, momentum=0.9))


def train(model: nn.Module, optimizer: Any, update: Callable[[], Any], oracle: nn.Module, exact: Any) -> None:
    """Two steps of both; the weights must be the same."""
    step = compile_step(loss_of)
    for x in batch(2):
        step(model, x.to("mps")).backward()
        loss_of(oracle, x.double()).backward()
        update()
        exact.step()
        optimizer.zero_grad()
        exact.zero_grad()
    for (name, got), want in zip(model.named_parameters(), oracle.parameters(), strict=True):
        # AdamW divides a gradient by its own size: where it is near 0, as that of a bias of keys, only its sign counts.
        torch.testing.assert_close(got.cpu().double(), want, rtol=1e-4, atol=2.1e-2 if name == "qkv.bias" else 1e-4)
    assert launches() == dict.fromkeys(EACH_ONCE, 2)


def test_compiled_autograd() -> None:
    model, oracle = pair(block())
    (x,) = batch()

    def step(model: nn.Module, x: Tensor) -> None:
        loss_of(model, x).backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        compile_step(step)(model, x.to("mps"))
    loss_of(oracle, x.double()).backward()
    check_gradients(model, oracle)
    assert launches() == EACH_ONCE


def test_a_graph_break_between_two_blocks() -> None:
    model, oracle = pair(nn.Sequential(block(), block()))
    (x,) = batch()

    def step(model: nn.Sequential, x: Tensor) -> Tensor:
        x = model[0](x)
        torch._dynamo.graph_break()
        return loss_of(model[1], x)

    compile_step(step)(model, x.to("mps")).backward()
    loss_of(oracle, x.double()).backward()
    check_gradients(model, oracle)
    assert launches() == dict.fromkeys(EACH_ONCE, 2)


def test_hooks_see_and_change_gradients() -> None:
    model, oracle = pair(block())
    for one in (model, oracle):
        one.qkv.weight.register_hook(lambda grad: grad * 2)
        one.qkv.register_full_backward_hook(lambda _module, _inputs, outputs: None)
    (x,) = batch()
    own, exact = x.to("mps").requires_grad_(), x.double().requires_grad_()
    compile_step(loss_of)(model, own).backward()
    loss_of(oracle, exact).backward()
    check_gradients(model, oracle)
    assert launches() == EACH_ONCE


def test_split_graphs_of_data_parallel_training() -> None:
    """DDPOptimizer cuts the graph where gradient buckets end; each part gets the pass. MPS has no process groups."""
    from torch._dynamo.backends.distributed import DDPOptimizer

    from inductor_mps_attention.backend import mps_attention

    model, oracle = pair(nn.Sequential(block(), block()))
    (x,) = batch()
    parts: list[int] = []

    def compile_part(graph_module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        parts.append(len(graph_module.graph.nodes))
        return mps_attention(graph_module, inputs)

    splitter = DDPOptimizer(
        bucket_bytes_cap=WIDTH * WIDTH * 4, first_bucket_cap=WIDTH * WIDTH * 4, backend_compile_fn=compile_part
    )
    torch.compile(loss_of, backend=splitter.compile_fn)(model, x.to("mps")).backward()
    loss_of(oracle, x.double()).backward()
    assert len(parts) > 1
    check_gradients(model, oracle)
    assert launches() == dict.fromkeys(EACH_ONCE, 2)


def test_deterministic_mode_gives_the_same_bits_each_time() -> None:
    model, _ = pair(block())
    (x,) = batch()
    step = compile_step(loss_of)
    gradients = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            model.zero_grad()
            step(model, x.to("mps")).backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=lambda m: m.__name__)
def test_inference_gives_the_bits_of_training(mode: Any) -> None:
    model, _ = pair(block())
    (x,) = batch()
    compiled = compile_step(model)
    trained = compiled(x.to("mps"))
    with mode():
        assert torch.equal(compiled(x.to("mps")), trained.detach())
    model.eval()
    assert torch.equal(compiled(x.to("mps")), trained)
    assert launches() == {"forward": 3}


def test_vmap_is_right_and_other_transforms_say_so() -> None:
    q, k, v = (torch.randn(3, 1, HEADS, LENGTH, 16, device="mps") for _ in "qkv")

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    mapped = compile_step(lambda *args: torch.func.vmap(attend)(*args))
    torch.testing.assert_close(mapped(q, k, v), torch.func.vmap(attend)(q, k, v))

    def gradient(q: Tensor) -> Tensor:
        return torch.func.grad(lambda q: attend(q, k[0], v[0]).sum())(q)

    torch.testing.assert_close(compile_step(gradient)(q[0]), gradient(q[0]))  # left to stock: GRAD_TRANSFORM


def test_double_backward_is_one_clear_error() -> None:
    q = torch.randn(1, HEADS, LENGTH, 16, device="mps", requires_grad=True)
    out = compile_step(lambda q: F.scaled_dot_product_attention(q, q, q))(q).sin().sum()
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(out, q, create_graph=True)[0].square().sum().backward()

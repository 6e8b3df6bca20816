"""Compiled training through the backend: gradients against float64, launches, graphs, saved tensors, memory."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Graph, Node

import inductor_mps_attention as ima
from tests.support import budgets
from tests.support.models import SPELLINGS, Attention, Decoder

LAYERS = 2
LENGTH = 72  # no other size of the models is 72


def tokens(batch: int = 2, length: int = LENGTH) -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, 65, (batch, length + 1))
    return ids[:, :-1], ids[:, 1:]


class Recorder(torch._inductor.custom_graph_pass.CustomGraphPass):
    """Keeps a copy of each graph that AOTAutograd hands to Inductor."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []

    def __call__(self, graph: Graph) -> None:
        self.graphs.append(copy.deepcopy(graph))

    def uuid(self) -> None:
        return None


def calls(graph: Graph, name: str) -> list[Node]:
    return [node for node in graph.nodes if name in str(node.target) and node.op == "call_function"]


@pytest.mark.parametrize(
    ("spelling", "dtype", "is_causal"),
    [
        ("sdpa", torch.float32, True),
        ("sdpa", torch.float32, False),
        ("manual", torch.float32, True),
        ("manual", torch.float32, False),
        ("sdpa", torch.bfloat16, True),
        ("manual", torch.float16, True),
    ],
    ids=str,
)
def test_every_parameter_gets_the_gradient_of_float64(spelling: str, dtype: torch.dtype, is_causal: bool) -> None:
    model = Decoder(spelling, layers=LAYERS, is_causal=is_causal)
    oracle, eager = copy.deepcopy(model).double(), copy.deepcopy(model).to(dtype)
    x, y = tokens()
    oracle(x, y).backward()
    eager(x, y).backward()
    model = model.to("mps", dtype)
    torch.compile(model, backend="mps_attention", fullgraph=True, dynamic=False)(x.to("mps"), y.to("mps")).backward()
    assert ima.stats()["fused"] == LAYERS
    for (name, got), exact, plain in zip(
        model.named_parameters(), oracle.parameters(), eager.parameters(), strict=True
    ):
        # A whole model's error is eager's as much as ours: at most 1.5 times eager's, or the operator's budget.
        allowed = max(1.5 * budgets.relative_error(plain.grad, exact.grad), budgets.BACKWARD[dtype])
        budgets.check(name, got.grad, exact.grad, allowed)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_graph_of_training_holds_a_queries_by_keys_tensor(spelling: str) -> None:
    """Neither forward nor backward; and what is saved for the backward is q, k, v, out and one float32 row vector."""
    recorder = Recorder()
    model = Decoder(spelling, layers=LAYERS).to("mps")
    x, y = (t.to("mps") for t in tokens())
    options = {"post_grad_custom_pre_pass": recorder}
    torch.compile(model, backend="mps_attention", fullgraph=True, dynamic=False, options=options)(x, y).backward()
    forward, backward = recorder.graphs
    for graph in recorder.graphs:
        for node in graph.nodes:
            assert not _is_square(node.meta.get("val")), f"{node} of {node.target} is (..., {LENGTH}, {LENGTH})"
    assert len(calls(forward, "flash_forward")) == len(calls(backward, "flash_backward")) == LAYERS
    assert not calls(backward, "flash_forward"), "the forward is computed again"
    for node in calls(backward, "flash_backward"):
        saved = [argument for argument in node.args[1:6] if isinstance(argument, Node)]
        assert [_root(argument).op for argument in saved] == ["placeholder"] * 5
    rows = [value for value in map(_value, _saved(forward)) if value.dim() == 3 and value.shape[-1] == LENGTH]
    assert [(value.dtype, tuple(value.shape)) for value in rows] == [(torch.float32, (2, 4, LENGTH))] * LAYERS


def _is_square(value: Any) -> bool:
    values = value if isinstance(value, (tuple, list)) else [value]
    return any(isinstance(v, Tensor) and tuple(v.shape[-2:]) == (LENGTH, LENGTH) for v in values)


def _root(node: Node) -> Node:
    """Through views to where the memory comes from."""
    views = (
        "view",
        "permute",
        "transpose",
        "slice",
        "split",
        "getitem",
        "expand",
        "unsqueeze",
        "select",
        "alias",
        "t.",
    )
    while node.op == "call_function" and any(name in str(node.target) for name in views):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _saved(forward: Graph) -> list[Node]:
    (outputs,) = forward.output_node().args
    return [node for node in outputs if isinstance(node, Node)]  # type: ignore[union-attr]


def _value(node: Node) -> Tensor:
    return node.meta["val"] if isinstance(node.meta["val"], Tensor) else torch.empty(())


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_launches_are_layers_times_steps_for_each_role(spelling: str) -> None:
    model = Decoder(spelling, layers=LAYERS).to("mps")
    compiled = torch.compile(model, backend="mps_attention", dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x, y = (t.to("mps") for t in tokens(length=40))
    steps = 3
    for _ in range(steps):
        optimizer.zero_grad()
        compiled(x, y).backward()
        optimizer.step()
    roles = ("forward", "backward_delta", "backward_dq", "backward_dkv")
    assert ima.stats()["launches"] == dict.fromkeys(roles, LAYERS * steps)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_losses_of_training_are_those_of_eager(spelling: str) -> None:
    model = Decoder(spelling, layers=LAYERS)
    eager = copy.deepcopy(model)
    model = model.to("mps")
    compiled = torch.compile(model, backend="mps_attention", dynamic=False)
    optimizers = [torch.optim.AdamW(m.parameters(), 3e-3) for m in (model, eager)]
    for _ in range(6):
        x, y = tokens(batch=4, length=48)
        losses = [compiled(x.to("mps"), y.to("mps")), eager(x, y)]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ours, theirs = (loss.item() for loss in losses)
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_peak_memory_grows_with_the_length_not_with_its_square() -> None:
    """One training step of hand-written causal attention, one head of 32, batch 1."""
    model = Attention(32, 1, "manual").to("mps")
    compiled = torch.compile(model, backend="mps_attention", dynamic=False)
    lengths = (256, 512, 1024, 2048)
    ours = [_peak_of_a_step(compiled, length) for length in lengths]
    eager = [_peak_of_a_step(model, length) for length in lengths]
    assert all(later / earlier < 2.2 for earlier, later in itertools.pairwise(ours)), f"bytes {ours}"
    assert eager[-1] / eager[-2] > 3, f"eager {eager}: the measure does not see what it should"
    assert eager[-1] > 8 * ours[-1]


def _peak_of_a_step(model: Any, length: int) -> int:
    """Bytes above the parameters and the input."""
    x = torch.randn(1, length, 32, device="mps", requires_grad=True)
    model(x).sum().backward()  # compiles; and the parameters' gradients exist
    x.grad = None
    before = torch.mps.current_allocated_memory()
    ima.simulator.reset_peak_memory()
    model(x).sum().backward()
    return int(ima.simulator.peak_memory()) - before


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_one_compilation_serves_all_lengths(spelling: str) -> None:
    model = Decoder(spelling)
    oracle = copy.deepcopy(model).double()
    model = model.to("mps")
    compiled = torch.compile(model, backend="mps_attention", dynamic=True, fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for length in (64, 33, 100):
            x, y = tokens(length=length)
            loss = compiled(x.to("mps").contiguous(), y.to("mps").contiguous())
            loss.backward()
            assert loss.item() == pytest.approx(oracle(x, y).item(), rel=1e-5)
    assert ima.stats()["launches"]["forward"] == 2 * 3


def test_autocast() -> None:
    model = Decoder("manual").to("mps")
    oracle = copy.deepcopy(model).cpu().double()
    x, y = tokens()
    with torch.autocast("mps", dtype=torch.bfloat16):
        loss = torch.compile(model, backend="mps_attention", dynamic=False)(x.to("mps"), y.to("mps"))
    loss.backward()
    assert ima.stats()["fused"] == LAYERS
    oracle(x, y).backward()
    for (name, got), exact in zip(model.named_parameters(), oracle.parameters(), strict=True):
        budgets.check(name, got.grad, exact.grad, 3e-2)  # the linear layers around it round to bfloat16 as well


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_activation_checkpointing_computes_the_forward_again(use_reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    model = Attention(32, 2, "sdpa").to("mps")
    x = torch.randn(1, 40, 32, device="mps", requires_grad=True)
    checkpointed = torch.compile(lambda x: checkpoint(model, x, use_reentrant=use_reentrant), backend="mps_attention")
    checkpointed(x).sum().backward()
    got, x.grad = x.grad, None
    model(x).sum().backward()
    torch.testing.assert_close(got, x.grad, rtol=1e-4, atol=1e-6)
    assert ima.stats()["launches"] == {"forward": 2, "backward_delta": 1, "backward_dq": 1, "backward_dkv": 1}


def test_inference_and_training_give_the_same_bits() -> None:
    model = Decoder("manual").to("mps").eval()
    x = tokens()[0].to("mps")
    compiled = torch.compile(model, backend="mps_attention", dynamic=False)
    training = compiled(x).detach()
    with torch.no_grad():
        assert torch.equal(compiled(x), training)
    with torch.inference_mode():
        assert torch.equal(compiled(x), training)

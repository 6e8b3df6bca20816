"""The ways into the pass: the backend's name, its modes, options and inner compilers, and the default inductor."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_custom_graph_passes

import inductor_mps_attention as ima
from inductor_mps_attention.errors import InvalidOption

QKV = [torch.randn(2, 4, 33, 32) for _ in "qkv"]


def attend(q, k, v):
    return (q @ k.mT * 0.2).softmax(-1) @ v


def on_device() -> list[torch.Tensor]:
    return [t.to("mps") for t in QKV]


def assert_right(result: torch.Tensor) -> None:
    torch.testing.assert_close(result.cpu(), attend(*QKV), rtol=1e-5, atol=1e-6)


class Spy(CustomGraphPass):
    """A user's own pass: counts how many softmax nodes it saw."""

    def __init__(self) -> None:
        self.softmaxes = 0

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.softmaxes += sum("softmax" in str(node.target) for node in graph.nodes)

    def uuid(self) -> str:
        return "spy"


@pytest.fixture
def inductor_passes():
    """`pre_grad_custom_pass` as it was, whatever the test does to it."""
    before = inductor_config.pre_grad_custom_pass
    yield
    inductor_config.pre_grad_custom_pass = before


def test_a_process_that_never_imports_the_package_finds_the_backend(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, torch.nn.functional as F\n"
        "q = torch.randn(1, 2, 16, 32, device='mps', requires_grad=True)\n"
        "f = torch.compile(lambda q: F.scaled_dot_product_attention(q, q, q), backend='mps_attention')\n"
        "f(q).sum().backward()\n"
        "import sys\n"
        "print(sys.modules['inductor_mps_attention.runtime.tally'].launches())\n"
    )
    result = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "MPS_ATTENTION_SIMULATOR": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "'backward_dkv': 1" in result.stdout


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes(mode: str | None) -> None:
    assert_right(torch.compile(attend, backend="mps_attention", mode=mode)(*on_device()))
    assert ima.stats()["fused"] == 1


@pytest.mark.parametrize("inner", ["inductor", "aot_eager", "eager"])
def test_inner_compilers_fuse_forward_and_backward(inner: str) -> None:
    q, k, v = (t.requires_grad_() for t in on_device())
    result = torch.compile(attend, backend="mps_attention", options={"attention.inner": inner})(q, k, v)
    assert_right(result.detach())
    result.sum().backward()
    assert ima.stats()["launches"] == {"forward": 1, "backward_delta": 1, "backward_dq": 1, "backward_dkv": 1}


def test_options_of_inductor_go_to_inductor() -> None:
    spy = Spy()
    options = {"attention.min_seq_len": 8, "pre_grad_custom_pass": spy, "max_autotune": False}
    assert_right(torch.compile(attend, backend="mps_attention", options=options)(*on_device()))
    assert spy.softmaxes == 1, "the user's own pass runs first and sees the attention as it was written"
    assert ima.stats()["fused"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention.strickt": True}, "unknown option 'strickt'"),
        ({"attention.strict": 1}, "strict must be True or False, got 1"),
        ({"attention.fuel": -1}, "fuel must be an integer of 0 or more, got -1"),
        ({"attention.inner": "triton"}, "inner must be one of inductor, aot_eager, eager, got 'triton'"),
        ({"attention.patterns": ("sdpa", "flash")}, "patterns must be one of sdpa, manual, mha, got 'flash'"),
        ({"attention.policy": "never"}, "policy must be one of always, auto, got 'never'"),
    ],
)
def test_a_wrong_option_is_one_clear_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        torch.compile(attend, backend="mps_attention", options=options)(*on_device())


def test_environment_variables_are_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPS_ATTENTION_FUEL", "0")
    torch.compile(attend, backend="mps_attention")(*on_device())
    assert ima.stats()["declined"] == {"FUEL": 1}
    monkeypatch.setenv("MPS_ATTENTION_FUEL", "none")
    from inductor_mps_attention.config import read_options

    with pytest.raises(InvalidOption, match="MPS_ATTENTION_FUEL"):
        read_options()
    assert read_options({"fuel": 3}).fuel == 3, "what is given wins over the environment"


def test_strict_raises_with_the_reason() -> None:
    mask = torch.ones(33, 33, dtype=torch.bool, device="mps")
    masked = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # noqa: E731
    with pytest.raises(Exception, match=r"test_backend\.py:\d+.*MASK"):
        torch.compile(masked, backend="mps_attention", options={"attention.strict": True})(*on_device())


def test_the_default_inductor_is_left_as_it_was(inductor_passes) -> None:
    before = inductor_config.pre_grad_custom_pass
    with ima.registered():
        assert_right(torch.compile(attend, backend="inductor")(*on_device()))
        assert ima.stats()["fused"] == 1
    assert inductor_config.pre_grad_custom_pass is before
    torch._dynamo.reset()
    torch.compile(attend)(*on_device())
    assert ima.stats()["fused"] == 1


def test_other_passes_stay_in_their_order(inductor_passes) -> None:
    first, second, third = Spy(), Spy(), Spy()
    inductor_config.pre_grad_custom_pass = (first, second)
    ima.register()
    ima.register(min_seq_len=4)
    passes = get_custom_graph_passes(inductor_config.pre_grad_custom_pass)
    assert passes[:2] == (first, second)
    assert len(passes) == 3, "registering again replaces, it does not add"
    inductor_config.pre_grad_custom_pass = (*passes, third)
    ima.unregister()
    assert inductor_config.pre_grad_custom_pass == (first, second, third)
    ima.unregister()
    assert inductor_config.pre_grad_custom_pass == (first, second, third)


def test_registered_nests_and_keeps_what_is_added_inside(inductor_passes) -> None:
    spy, later = Spy(), Spy()
    inductor_config.pre_grad_custom_pass = spy
    with ima.registered(min_seq_len=4):
        outer = inductor_config.pre_grad_custom_pass
        with ima.registered(min_seq_len=8):
            pass
        assert inductor_config.pre_grad_custom_pass is outer
        inductor_config.pre_grad_custom_pass = (*get_custom_graph_passes(outer), later)
    assert inductor_config.pre_grad_custom_pass == (spy, later)


def test_registered_restores_after_an_error(inductor_passes) -> None:
    before = inductor_config.pre_grad_custom_pass
    with pytest.raises(ZeroDivisionError), ima.registered():
        raise ZeroDivisionError
    assert inductor_config.pre_grad_custom_pass is before


def test_register_refuses_the_backend_s_own_option(inductor_passes) -> None:
    with pytest.raises(InvalidOption, match="inner"):
        ima.register(inner="eager")


def test_the_backend_inside_registered_rewrites_once(inductor_passes) -> None:
    with ima.registered():
        assert_right(torch.compile(attend, backend="mps_attention")(*on_device()))
    assert ima.stats()["fused"] == 1


def test_the_cache_key_follows_options_and_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    from inductor_mps_attention.config import Options
    from inductor_mps_attention.matching.fusion_pass import FusionPass

    assert FusionPass(Options()).uuid() == FusionPass(Options(dump_dir="x")).uuid()
    assert FusionPass(Options()).uuid() != FusionPass(Options(fuel=3)).uuid()
    assert FusionPass(Options()).uuid() != FusionPass(Options(patterns=("sdpa",))).uuid()


def test_no_warning_on_the_ordinary_way() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.compile(attend, backend="mps_attention")(*on_device())
    assert not [w for w in caught if "inductor_mps_attention" in str(w.filename) or "attention" in str(w.message)]


SCALE = 0.2


@pytest.mark.parametrize("training", [False, True])
def test_a_scale_that_dynamo_makes_symbolic(training: bool) -> None:
    """dynamic=True makes a global float an input of the graph, on the queries or on the scores."""

    def on_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ((q * SCALE) @ k.mT).softmax(-1) @ v

    def on_scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT * SCALE).softmax(-1) @ v

    tensors = [torch.randn(1, 2, 20, 16) for _ in range(3)]
    for attend in (on_queries, on_scores):
        ima.reset_stats()
        own = [t.to("mps").requires_grad_(training) for t in tensors]
        exact = [t.double().requires_grad_(training) for t in tensors]
        out = torch.compile(attend, backend="mps_attention", dynamic=True)(*own)
        torch.testing.assert_close(out.cpu(), attend(*exact).float(), rtol=1e-5, atol=1e-6)
        if training:
            grads = torch.autograd.grad(out.square().sum(), own)
            expected = torch.autograd.grad(attend(*exact).square().sum(), exact)
            for got, right in zip(grads, expected, strict=True):
                torch.testing.assert_close(got.cpu(), right.float(), rtol=1e-4, atol=1e-5)
        assert ima.stats()["launches"]["forward"] == 1

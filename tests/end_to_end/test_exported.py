"""Programs that torch.export made: graphs of ATen operators, C++ packages, and weights that Inductor folds in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

import inductor_mps_attention as ima
from benchmarks.cpp_text import package_text
from tests.support import budgets
from tests.support.models import SPELLINGS, Attention

WIDTH, HEADS, LENGTH = 32, 2, 24
EACH_ONCE = dict.fromkeys(("forward", "backward_delta", "backward_dq", "backward_dkv"), 1)


def inputs(length: int = LENGTH) -> Tensor:
    return torch.randn(2, length, WIDTH, device="mps")


def exported(model: nn.Module, dynamic: bool = False, strict: bool = False) -> ExportedProgram:
    shapes = {"x": {1: Dim("length", min=2, max=512)}} if dynamic else None
    return export(model, (inputs(),), dynamic_shapes=shapes, strict=strict)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(("dynamic", "strict"), [(False, True), (True, False)], ids=["strict", "dynamic"])
def test_a_graph_of_aten_operators_is_fused(spelling: str, dynamic: bool, strict: bool) -> None:
    model = Attention(WIDTH, HEADS, spelling).to("mps").eval()
    compiled = torch.compile(exported(model, dynamic, strict).module(), backend="mps_attention", dynamic=dynamic)
    lengths = (LENGTH, 31) if dynamic else (LENGTH,)
    with torch.no_grad():
        for length in lengths:
            x = inputs(length)
            budgets.check("out", compiled(x), model(x), budgets.BACKWARD[torch.float32])
    assert ima.stats()["fused"] == 1
    assert ima.stats()["launches"] == {"forward": len(lengths)}


def test_an_exported_model_is_trained() -> None:
    model = Attention(WIDTH, HEADS, "manual").to("mps")
    program = exported(model).module()
    x = inputs()
    torch.compile(program, backend="mps_attention")(x).sin().sum().backward()
    model(x).sin().sum().backward()
    for (name, got), want in zip(program.named_parameters(), model.parameters(), strict=True):
        budgets.check(name, got.grad, want.grad, budgets.BACKWARD[torch.float32], least=1e-4)
    assert ima.stats()["launches"] == EACH_ONCE


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_the_text_of_a_package_calls_the_kernel_on_views(dynamic: bool) -> None:
    """Three views of one projection and the output; a length that varies is an integer; no operator of Python's."""
    program = exported(Attention(WIDTH, HEADS, "manual").to("mps").eval(), dynamic)
    with ima.registered(), torch.no_grad():
        text = package_text(program)
    arguments = [line.strip() for line in text.splitlines() if "aoti_torch_mps_set_arg_" in line and "handle, " in line]
    assert text.count("aoti_torch_mps_run_command_block(") == 1
    tensors = [line for line in arguments if "set_arg_tensor" in line]
    assert [f", {offset}L)" in line for offset, line in zip((0, 32, 64), tensors[:3], strict=True)] == [True] * 3
    assert len(tensors) == 4
    assert len(arguments) == (5 if dynamic else 4)
    assert "torch.ops.mps_attention" not in text
    assert "mps_attention::flash" not in text


def test_the_simulated_device_refuses_to_build_a_package_in_one_sentence() -> None:
    program = exported(Attention(WIDTH, HEADS, "sdpa").to("mps").eval())
    with (
        ima.registered(),
        torch.no_grad(),
        pytest.raises(Exception, match="cpp_wrapper and AOTInductor need an MPS build of PyTorch"),
    ):
        torch._inductor.aoti_compile_and_package(program)


def test_freezing_keeps_the_fused_attention() -> None:
    model = Attention(WIDTH, HEADS, "manual").to("mps").eval()
    x = inputs()
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        out = torch.compile(model, backend="mps_attention")(x)
        budgets.check("out", out, model(x), budgets.BACKWARD[torch.float32])
    assert ima.stats()["launches"] == {"forward": 1}

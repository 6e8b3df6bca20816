"""The C++ that cpp_wrapper and AOTInductor write for our launches: read, not run, which needs a libtorch with MPS."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.cpp_text import cpp_texts


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def inputs(grad: bool) -> list[Tensor]:
    return [torch.randn(2, 2, 40, 16, device="mps", requires_grad=grad) for _ in "qkv"]


def test_the_text_of_inference_holds_the_kernel_and_its_call() -> None:
    q, k, v = inputs(grad=False)
    for tensor in (q, k, v):
        torch._dynamo.mark_dynamic(tensor, 2)
    (code,) = cpp_texts(lambda: torch.compile(attend, backend="mps_attention")(q, k, v))
    assert 'const char* mps_attention_0_source = R"MTL(#include <metal_stdlib>' in code
    assert "kernel void generated_kernel(" in code
    assert "aoti_torch_mps_run_command_block(get_mps_attention_0_handle()" in code
    assert code.count("aoti_torch_mps_set_arg_tensor(handle, ") == 4  # q, k, v, out: no logsumexp, no parameters
    assert "aoti_torch_mps_set_arg_int(handle, 4, s" in code
    assert "dispatch_array_with_group_size" in code


def test_the_text_of_training_holds_all_roles() -> None:
    forward, backward = cpp_texts(lambda: torch.compile(attend, backend="mps_attention")(*inputs(grad=True)))
    assert forward.count("_source = R") == 1
    assert backward.count("_source = R") == 3
    for code in (forward, backward):
        assert "mps_attention::" not in code  # no opaque call
        assert "mps_attention.flash" not in code

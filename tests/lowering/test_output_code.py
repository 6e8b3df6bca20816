"""What Inductor writes for compiled attention: direct calls, its own allocations, no copies, no S x S buffer."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor.utils import run_and_get_code

import inductor_mps_attention as ima
from tests.support.models import SPELLINGS, Attention, Decoder
from tests.support.output_code import (
    TensorArgument,
    allocations,
    asserted_strides,
    attention_calls,
    body,
    called_functions,
    copies,
    holds_square,
)

LAYERS, LENGTH = 4, 72  # no other size of the models is 72


def roles(code: str) -> Counter[str]:
    return Counter(call.role for call in attention_calls(code))


def training_code(model: torch.nn.Module, *inputs: Tensor, **options: Any) -> tuple[str, str]:
    """Output code of forward and backward of one training step; the model returns a loss."""
    compiled = torch.compile(model, backend="mps_attention", fullgraph=True, dynamic=False, **options)
    _, codes = run_and_get_code(lambda: compiled(*inputs).backward())
    forward, backward = codes
    return forward, backward


def tokens() -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, 65, (2, LENGTH + 1), device="mps")
    return ids[:, :-1], ids[:, 1:]


def llama() -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=65,
        hidden_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Tensor) -> Tensor:
            return self.model(ids, labels=ids).loss

    return Loss()


INDUCTORS_OWN = re.compile(
    r"empty_strided|reinterpret_tensor|assert_\w+|copy_if_misaligned|args\.clear|generated_kernel_\d+"
    r"|extern_kernels\.\w+|torch\.ops\.aten\.linear_backward\.default"
)
"""Calls of the output code that are there with any model; `empty_strided` is the one that allocates."""


def check_calls(forward: str, backward: str) -> None:
    """The kernels are called directly, and nothing else is done for them: no copy, no buffer but Inductor's."""
    assert roles(forward) == {"forward": LAYERS}
    assert roles(backward) == {"backward_delta": LAYERS, "backward_dq": LAYERS, "backward_dkv": LAYERS}
    for code in (forward, backward):
        assert not [size for size in allocations(code) if holds_square(size, LENGTH)]
        assert not copies(code)
        others = {name for name in called_functions(code) if not INDUCTORS_OWN.fullmatch(name)}
        assert others == {call.name for call in attention_calls(code)}


def check_saved(forward: str, backward: str) -> None:
    """The backward's kernels read what the forward read and wrote: as many tensors, each a whole input or a view."""
    inputs = set(re.findall(r"^        (.*) = args$", backward, re.MULTILINE)[0].split(", "))
    for call in attention_calls(backward):
        if call.role != "backward_delta":
            q, k, v, _, logsumexp, _ = call.tensors[:6]
            assert {q.buffer, k.buffer, v.buffer, logsumexp.buffer} <= inputs
    for call in attention_calls(forward):
        assert len(call.tensors) == 5  # q, k, v, out and logsumexp


def test_the_reading_of_output_code_sees_squares_and_copies() -> None:
    """Stock attention holds scores, and `contiguous` of a transposed tensor is a copy."""

    def unfused(x: Tensor) -> Tensor:
        return (x @ x.mT).tanh() @ x.transpose(0, 1).contiguous().transpose(0, 1)

    x = torch.randn(2, 4, LENGTH, 16, device="mps")
    _, (code,) = run_and_get_code(torch.compile(unfused, dynamic=False), x)
    assert [size for size in allocations(code) if holds_square(size, LENGTH)]
    assert copies(code)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_decoder_calls_the_kernels_on_views_of_its_projection(spelling: str) -> None:
    model = Decoder(spelling, layers=LAYERS).to("mps")
    forward, backward = training_code(model, *tokens())
    check_calls(forward, backward)
    check_saved(forward, backward)
    for call in attention_calls(forward):
        check_slices(call.tensors[:3])
    calls = attention_calls(backward)
    strides = asserted_strides(backward)
    for saved in (tensor.buffer for call in calls if call.role == "backward_dq" for tensor in call.tensors[:3]):
        assert strides[saved] == "(13824, 16, 192, 1)"  # still views of the projection
    for dq, dkv in zip(*([c for c in calls if c.role == f"backward_{r}"] for r in ("dq", "dkv")), strict=True):
        check_slices((*dq.tensors[-1:], *dkv.tensors[-2:]))  # no cat of dq, dk and dv


def check_slices(tensors: tuple[TensorArgument, ...]) -> None:
    """Three views of one packed projection, side by side."""
    assert [tensor.offset for tensor in tensors] == ["0", "64", "128"]
    assert {(tensor.size, tensor.stride) for tensor in tensors} == {("(2, 4, 72, 16)", "(13824, 16, 192, 1)")}
    assert len({tensor.buffer for tensor in tensors}) == 1


def test_a_llama_with_grouped_heads_calls_the_kernels() -> None:
    forward, backward = training_code(llama().to("mps"), tokens()[0])
    check_calls(forward, backward)
    check_saved(forward, backward)
    for call in attention_calls(forward):
        # v is a view of its projection with its own two heads; q and k come out of their rotation as they are.
        assert [tensor.size for tensor in call.tensors[:3]] == ["", "", "(2, 2, 72, 16)"]


def test_inference_neither_writes_nor_allocates_a_logsumexp() -> None:
    model = Attention(64, 4, "sdpa").to("mps")
    compiled = torch.compile(model, backend="mps_attention", fullgraph=True, dynamic=False)
    with torch.no_grad():
        _, (code,) = run_and_get_code(compiled, torch.randn(2, LENGTH, 64, device="mps"))
    (call,) = attention_calls(code)
    assert "_lse_" not in call.name
    assert "(2, 4, 72)" not in body(code)
    assert "logsumexp" not in code


def test_no_gradient_is_computed_that_nobody_reads() -> None:
    """A frozen key projection needs no dk; where only v is trained, one kernel makes its gradient without scratch."""
    q, k = (torch.randn(1, 2, LENGTH, 16, device="mps") for _ in range(2))
    v = torch.randn(1, 2, LENGTH, 16, device="mps", requires_grad=True)

    def attend(v: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).sum()

    _, (_, backward) = run_and_get_code(lambda: torch.compile(attend, backend="mps_attention")(v).backward())
    (call,) = attention_calls(backward)
    assert call.role == "backward_dkv"
    assert "_dv_" in call.name
    assert (1, 2, LENGTH) not in allocations(backward)


def test_symbols_are_integers_of_the_call_and_nothing_is_uploaded() -> None:
    model = Decoder("sdpa", layers=1).to("mps")
    compiled = torch.compile(model, backend="mps_attention", fullgraph=True, dynamic=True)
    x, y = (ids.contiguous() for ids in tokens())
    _, (forward, _) = run_and_get_code(lambda: compiled(x, y).backward())
    for call in attention_calls(forward):
        assert len(call.integers) == 1
    assert "constant long& z0" in forward
    assert "params" not in forward
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for length in (9, 65):
        x, y = (torch.randint(0, 65, (2, length), device="mps") for _ in "xy")
        torch.testing.assert_close(compiled(x, y), model(x, y), rtol=2e-5, atol=2e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


def test_equal_layers_share_one_text() -> None:
    forward, backward = training_code(Decoder("sdpa", layers=LAYERS).to("mps"), *tokens())
    assert forward.count("= load_kernel(") == 1
    assert backward.count("= load_kernel(") == 3
    assert sum(ima.stats()["launches"].values()) == 4 * LAYERS

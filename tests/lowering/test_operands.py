"""Inputs of every layout and size reach the lowered kernels as eager sees them; without Inductor's API, too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.utils import run_and_get_code

import inductor_mps_attention as ima
from inductor_mps_attention import lowering
from tests.support import budgets
from tests.support.output_code import attention_calls


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def check(inputs: list[Tensor], dtype: torch.dtype = torch.float32, dynamic: bool = False) -> list[str]:
    """Compiled on the device, forward and backward, against float64; the output codes."""
    exact = [t.double().requires_grad_() for t in inputs]
    expected = attend(*exact)
    grad_out = torch.randn(expected.shape).to(dtype)
    expected.backward(grad_out.double())
    own = [_on_the_device(t).requires_grad_() for t in inputs]
    compiled = torch.compile(attend, backend="mps_attention", fullgraph=True, dynamic=dynamic)
    outs: list[Tensor] = []

    def step() -> None:
        outs.append(compiled(*own))
        outs[0].backward(grad_out.to("mps"))

    _, codes = run_and_get_code(step)
    budgets.check("out", outs[0], expected, budgets.FORWARD[dtype])
    for name, got, oracle in zip("qkv", own, exact, strict=True):
        budgets.check(f"d{name}", got.grad, oracle.grad, budgets.BACKWARD[dtype])
    return codes


def _on_the_device(t: Tensor) -> Tensor:
    """The same view of a copy of the whole storage: offset and strides stay."""
    whole = t.as_strided((t.untyped_storage().nbytes() // t.element_size(),), (1,), 0)
    return whole.to("mps").as_strided(t.shape, t.stride(), t.storage_offset())


def make(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_packed_heads_that_start_off_an_alignment(dtype: torch.dtype) -> None:
    """Offsets that are no multiple of 16 bytes rule out vector loads; the copy that Inductor makes is right too."""
    packed = make(2, 33, 3 * 2 * 12 + 1, dtype=dtype)
    parts = [packed[..., 1 + 24 * i : 25 + 24 * i].unflatten(-1, (2, 12)).transpose(1, 2) for i in range(3)]
    check(parts, dtype)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_last_dim_that_is_not_dense_is_copied(dynamic: bool) -> None:
    codes = check([make(1, 2, 16, 33).mT, make(1, 2, 16, 40).mT, make(1, 2, 40, 16)], dynamic=dynamic)
    assert attention_calls(codes[0])


def test_broadcast_keys_are_read_in_place() -> None:
    codes = check(
        [make(3, 4, 20, 16), make(1, 4, 24, 16).expand(3, -1, -1, -1), make(1, 4, 24, 16).expand(3, -1, -1, -1)]
    )
    assert attention_calls(codes[0])


@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (1, 3), (7, 300)])
def test_lengths_at_the_edges(queries: int, keys: int) -> None:
    check([make(2, 2, queries, 16), make(2, 2, keys, 16), make(2, 2, keys, 24)])


def test_graph_outputs_keep_the_strides_of_the_fakes() -> None:
    """The backward of what follows was traced with them."""
    x = torch.randn(2, 33, 4, 16, device="mps")

    def layout(x: Tensor) -> Tensor:
        return attend(*(t.transpose(1, 2) for t in (x, x + 1, x + 2)))

    compiled = torch.compile(layout, backend="mps_attention", fullgraph=True)
    assert compiled(x).stride() == (33 * 64, 16, 64, 1)
    assert compiled(x).transpose(1, 2).is_contiguous()


def test_without_the_private_api_the_operators_stay_opaque(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh process on a torch that lacks something: the same results, through opaque calls."""
    from torch._inductor import lowering as inductor_lowering

    from inductor_mps_attention.operators import flash_backward, flash_forward

    for operator in (flash_forward, flash_backward):
        monkeypatch.delitem(inductor_lowering.lowerings, operator, raising=False)
    monkeypatch.setattr(lowering, "enable", lambda: "ir has no MutationOutput")
    codes = check([make(1, 2, 33, 16) for _ in "qkv"])
    assert all("torch.ops.mps_attention.flash_" in code for code in codes)
    assert ima.stats()["launches"] == {"forward": 1, "backward_delta": 1, "backward_dq": 1, "backward_dkv": 1}


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import ir

    from inductor_mps_attention.lowering import inductor_api

    assert lowering.missing() is None
    monkeypatch.delattr(ir, "MutationOutput")
    inductor_api.missing.cache_clear()
    try:
        assert lowering.missing() == "torch._inductor.ir has no MutationOutput"
    finally:
        inductor_api.missing.cache_clear()


def test_branches_of_a_condition_have_kernels_of_their_own() -> None:
    def chosen(flag: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.cond(flag, lambda q, k, v: attend(q, k, v), lambda q, k, v: attend(q, v, k), (q, k, v))

    q, k, v = (torch.randn(1, 2, 20, 16, device="mps") for _ in "qkv")
    with torch.no_grad():
        compiled = torch.compile(chosen, backend="mps_attention")
        for flag in (True, False):
            expected = attend(q, k, v) if flag else attend(q, v, k)
            torch.testing.assert_close(compiled(torch.tensor(flag, device="mps"), q, k, v), expected)
    assert ima.stats()["launches"] == {"forward": 2}


@pytest.mark.parametrize(("head_dim", "v_head_dim"), [(13, 13), (80, 48), (192, 128)])
def test_any_head_dim(head_dim: int, v_head_dim: int) -> None:
    check([make(1, 2, 33, head_dim), make(1, 2, 40, head_dim), make(1, 2, 40, v_head_dim)])
    assert ima.stats()["fused"] == 1


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_key_mask_is_read_in_place(dynamic: bool) -> None:
    """A slice of a longer mask, in another order: both of its strides are in the text, and no copy is made."""
    from inductor_mps_attention.operators import flash_forward

    def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return flash_forward(q, k, v, mask.mT[:, :40], 0.25, None, 3)[0]

    mask = torch.rand(64, 2) > 0.3
    q, k, v = make(2, 4, 33, 16), make(2, 2, 40, 16), make(2, 2, 40, 16)
    exact = [t.double().requires_grad_() for t in (q, k, v)]
    own = [t.to("mps").requires_grad_() for t in (q, k, v)]
    expected = masked(*exact, mask)
    expected.sin().sum().backward()
    compiled = torch.compile(masked, backend="mps_attention", fullgraph=True, dynamic=dynamic)
    _, codes = run_and_get_code(lambda: compiled(*own, mask.to("mps")).sin().sum().backward())
    for name, got, oracle in zip("qkv", own, exact, strict=True):
        budgets.check(f"d{name}", got.grad, oracle.grad, budgets.BACKWARD[torch.float32])
    assert [len(attention_calls(code)) for code in codes] == [1, 3]
    assert "aten.clone" not in codes[0]

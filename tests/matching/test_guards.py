"""What no kernel takes: it is declined by name, whatever else is right with it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from inductor_mps_attention.codegen import APPLE
from torch import Tensor
from torch.fx import Graph

from inductor_mps_attention.config import Options
from inductor_mps_attention.errors import Reason
from inductor_mps_attention.matching import fusion_pass, guards
from inductor_mps_attention.matching.site import Site

from .harness import fuse, tensors


def manual(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT * 0.25).softmax(-1) @ v


def test_every_guard_is_asked() -> None:
    """A guard that is written and not entered in the table would be silent."""
    named = {guard.__name__ for guard in guards.GUARDS}
    functions = {
        name
        for name, item in vars(guards).items()
        if getattr(item, "__module__", "") == guards.__name__ and callable(item) and not name.startswith("_")
    }
    assert functions - {"Known", "rejections"} == named


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("spelling", ["manual", "sdpa"])
def test_dtypes_without_a_kernel(dtype: torch.dtype, spelling: str) -> None:
    if dtype.is_complex and spelling == "sdpa":
        with pytest.raises(RuntimeError):  # eager has none either
            F.scaled_dot_product_attention(*tensors(2, 4, 9, 8, dtype=dtype))
        return
    if dtype.is_complex:
        result = fuse(
            lambda q, k, v: (q @ k.mT).real.softmax(-1) @ v.real, *tensors(2, 4, 9, 8, dtype=dtype), grad=False
        )
    else:
        result = fuse(
            manual if spelling == "manual" else F.scaled_dot_product_attention, *tensors(2, 4, 9, 8, dtype=dtype)
        )
    result.declined()
    assert Reason.DTYPE in {reason.reason for site in result.sites for reason in site.reasons}
    assert str(dtype) in " ".join(result.messages())


def test_whole_numbers() -> None:
    q, k, v = (t.mul(4).long() for t in tensors(2, 4, 9, 8))
    result = fuse(lambda q, k, v: F.softmax(q @ k.mT, -1, dtype=torch.float32) @ v.float(), q, k, v, grad=False)
    result.declined()
    assert Reason.DTYPE in {reason.reason for site in result.sites for reason in site.reasons}


@pytest.mark.parametrize("empty", ["batch", "heads", "queries", "keys"])
def test_sizes_of_zero(empty: str) -> None:
    batch, heads, queries, keys = (0 if name == empty else 3 for name in ("batch", "heads", "queries", "keys"))
    q, k, v = (torch.randn(batch, heads, length, 8) for length in (queries, keys, keys))
    result = fuse(F.scaled_dot_product_attention, q, k, v, grad=False).declined(Reason.SHAPE).equals_fp64()
    assert "the size is 0; kernels need at least 1" in result.messages()[0]


@pytest.mark.parametrize("head_dim", [APPLE.max_head_dim, APPLE.max_head_dim + 1])
def test_the_planner_s_limit_is_the_limit(head_dim: int) -> None:
    result = fuse(manual, *tensors(1, 2, 5, head_dim))
    if head_dim <= APPLE.max_head_dim:
        result.fused().equals_fp64()
    else:
        result.declined(Reason.HEAD_DIM).equals_fp64()
        assert f"{head_dim}" in result.messages()[0]
        assert f"{APPLE.max_head_dim}" in result.messages()[0]


def test_operands_on_two_devices() -> None:
    q, k, v = tensors(2, 4, 9, 8)
    result = fuse(manual, q, k, v, device_types=("mps",))
    assert "q is on cpu; kernels run on mps" in result.declined(Reason.DEVICE).messages()


def hand_made(target: object, *examples: Tensor, result: Tensor) -> list[Site]:
    """One call on placeholders with these examples: Dynamo breaks its graphs at nested and sparse tensors by itself."""
    graph = Graph()
    nodes = [graph.placeholder(name) for name in "qkv"[: len(examples)]]
    call = graph.call_function(target, tuple(nodes))
    for node, example in zip([*nodes, call], [*examples, result], strict=True):
        node.meta["example_value"] = example
    graph.output(call)
    return fusion_pass.fuse(graph, Options(), ("cpu",))


def test_nested_tensors() -> None:
    nested = torch.nested.nested_tensor([torch.randn(length, 4, 8) for length in (5, 9)], layout=torch.jagged)
    q = nested.transpose(1, 2)
    (site,) = hand_made(F.scaled_dot_product_attention, q, q, q, result=F.scaled_dot_product_attention(q, q, q))
    assert any(reason.reason is Reason.LAYOUT and "nested" in reason.message for reason in site.reasons)


def test_sparse_tensors() -> None:
    q, k, v = tensors(2, 9, 8)
    result = F.scaled_dot_product_attention(q, k, v)
    (site,) = hand_made(F.scaled_dot_product_attention, q, k.to_sparse(), v, result=result)
    assert any(reason.reason is Reason.LAYOUT and "sparse" in reason.message for reason in site.reasons)


@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap", "vmap of grad"])
def test_functorch_levels(transform: str) -> None:
    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return manual(q, k, v).sum()

    functions = {
        "grad": torch.func.grad(loss),
        "jvp": lambda q, k, v: torch.func.jvp(lambda q: manual(q, k, v), (q,), (k,))[1],
        "vmap": torch.vmap(manual),
        "vmap of grad": torch.vmap(torch.func.grad(loss)),
    }
    result = fuse(functions[transform], *tensors(2, 4, 9, 8), grad=False)
    assert not any(site.fused for site in result.sites)
    result.equals_fp64(forward=1e-5)


def test_four_reasons_at_once() -> None:
    """Guards do not hide each other."""
    q, k, v = tensors(2, 4, 9, APPLE.max_head_dim + 8, dtype=torch.float64)
    result = fuse(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5), q, k, v, device_types=("mps",)
    )
    got = {reason.reason for site in result.sites for reason in site.reasons}
    assert got >= {Reason.DEVICE, Reason.DTYPE, Reason.DROPOUT}

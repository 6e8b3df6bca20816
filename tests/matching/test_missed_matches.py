"""Plain attention in spellings, layouts and shapes that others miss: the value would be right, the memory lost."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.matching.harness import FORWARD, close, tensors


def qkv(*shape: int) -> tuple[torch.Tensor, ...]:
    return tensors(*(shape or (2, 4, 33, 64)))


SPELLINGS = {
    "einsum with odd letters": lambda q, k, v: torch.einsum(
        "zwij,zwjd->zwid", torch.einsum("zwid,zwjd->zwij", q, k).mul(0.25).softmax(-1), v
    ),
    "movedim": lambda q, k, v: (q @ k.movedim(-1, -2)).softmax(-1) @ v,
    "matmul methods": lambda q, k, v: q.matmul(k.transpose(2, 3)).div(8).softmax(dim=-1).matmul(v),
    "multiply": lambda q, k, v: torch.multiply(0.25, q @ k.mT).softmax(-1) @ v,
    "true_divide": lambda q, k, v: torch.true_divide(q @ k.mT, 8).softmax(-1) @ v,
    "scale times scores": lambda q, k, v: (0.125 * (q @ k.mT)).softmax(-1) @ v,
    "a constant shift": lambda q, k, v: (q @ k.mT - 500.0).softmax(-1) @ v,
    "transposed scores": lambda q, k, v: (k @ q.mT).softmax(-2).mT @ v,
    "exp of log_softmax": lambda q, k, v: F.log_softmax(q @ k.mT, -1).exp() @ v,
    "logsumexp": lambda q, k, v: (lambda s: (s - s.logsumexp(-1, keepdim=True)).exp() @ v)(q @ k.mT),
    "in-place division": lambda q, k, v: (q @ k.mT).div_(8.0).softmax(-1) @ v,
    "unsqueezed scores": lambda q, k, v: (q @ k.mT).unsqueeze(0).softmax(-1).squeeze(0) @ v,
    "negative scale": lambda q, k, v: (q @ k.mT * -0.25).softmax(-1) @ v,
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(fused, name):
    fused(SPELLINGS[name], *qkv()).fused().equals_fp64()


def test_baddbmm_with_beta_zero(fused):  # diffusers
    def attention(q, k, v):
        return torch.bmm(torch.baddbmm(q.new_empty(1, 1, 1), q, k.mT, beta=0, alpha=0.25).softmax(-1), v)

    fused(attention, *qkv(8, 33, 64)).fused().equals_fp64()


def test_in_place_scaling_as_a_statement(fused):
    def attention(q, k, v):
        scores = q @ k.mT
        scores.mul_(0.25)
        return scores.softmax(-1) @ v

    fused(attention, *qkv()).fused().equals_fp64()


def test_type_as_the_scores(fused):  # T5, the original Llama: reads the scores' dtype only
    def attention(q, k, v):
        scores = q @ k.mT
        return F.softmax(scores.float(), dim=-1).type_as(scores) @ v

    fused(attention, *qkv()).fused().equals_fp64()


def test_scale_from_a_symbolic_head_dim(fused):  # pytorch#194444: the scale becomes a tensor
    function = lambda q, k, v: (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v  # noqa: E731
    result = fused(function, *qkv(), dynamic=True).fused().equals_fp64()
    assert result.sites[0].spec.scale == pytest.approx(0.125)


@pytest.mark.parametrize("shape", [(84, 3, 3, 64), (2, 33, 4, 64)])
def test_transposed_operands(fused, shape):  # pytorch#181133
    def attention(q, k, v):
        return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)))

    fused(attention, *qkv(*shape)).fused().equals_fp64()


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_sdpa_of_other_ranks(fused, rank):
    shape = (3, 5, 4, 33, 64)[-rank:]
    fused(F.scaled_dot_product_attention, *qkv(*shape)).fused().equals_fp64()


def test_batch_broadcast_between_q_and_k(fused):  # pytorch#189631
    (q,) = tensors(1, 4, 33, 64, count=1)
    k, v = tensors(3, 4, 33, 64, count=2)
    fused(F.scaled_dot_product_attention, q, k, v).fused().equals_fp64()


def test_one_tensor_as_q_k_and_v(fused):
    fused(lambda x: F.scaled_dot_product_attention(x, x, x), *tensors(2, 4, 33, 64, count=1)).fused().equals_fp64()


def test_slices_of_a_cache(fused):  # pytorch#146377: gradients of slices are garbage
    (q,) = tensors(2, 4, 33, 64, count=1)
    k, v = tensors(2, 4, 128, 64, count=2)
    function = lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :, :100], v[:, :, :100])  # noqa: E731
    fused(function, q, k, v).fused().equals_fp64()


REPEATS = {
    "repeat_interleave": lambda t: t.repeat_interleave(4, dim=1),
    "expand and reshape": lambda t: t[:, :, None].expand(2, 2, 4, 33, 64).reshape(2, 8, 33, 64),
    "repeat_interleave, negative dim": lambda t: t.repeat_interleave(4, -3),
    "sequence first": lambda t: t.transpose(1, 2).repeat_interleave(4, dim=2).transpose(1, 2),
}


@pytest.mark.parametrize("name", REPEATS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_repeated_heads_are_read_in_place(fused, name, dynamic):
    (q,) = tensors(2, 8, 33, 64, count=1)
    k, v = tensors(2, 2, 33, 64, count=2)
    repeat = REPEATS[name]
    result = fused(lambda q, k, v: F.scaled_dot_product_attention(q, repeat(k), repeat(v)), q, k, v, dynamic=dynamic)
    result.fused().equals_fp64()
    assert result.sites[0].spec.kv_heads == 2


def test_tiled_heads_are_not_groups(fused):
    (q,) = tensors(2, 8, 33, 64, count=1)
    k, v = tensors(2, 2, 33, 64, count=2)
    repeat = lambda t: t.repeat(1, 4, 1, 1)  # noqa: E731
    result = (
        fused(lambda q, k, v: F.scaled_dot_product_attention(q, repeat(k), repeat(v)), q, k, v).fused().equals_fp64()
    )
    assert result.sites[0].spec.kv_heads == 8


@pytest.mark.parametrize("need", ["q", "k", "v"])
def test_gradient_of_one_operand_alone(fused, need):
    inputs = [t.requires_grad_(name == need) for name, t in zip("qkv", qkv(), strict=True)]
    frozen = lambda q, k, v: F.scaled_dot_product_attention(  # noqa: E731
        *(t if name == need else t.detach() for name, t in zip("qkv", (q, k, v), strict=True))
    )
    fused(frozen, *inputs).fused().equals_fp64()


def test_softmax_with_a_dtype(fused):
    result = fused(lambda q, k, v: F.softmax(q @ k.mT, dim=-1, dtype=torch.float32) @ v, *qkv()).fused()
    oracle = F.scaled_dot_product_attention(*(t.double() for t in result.inputs), scale=1.0)
    close(result.outputs[0], oracle, FORWARD, "output")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_with_float32_softmax(fused, dtype):
    def attention(q, k, v):
        return F.softmax(q.float() @ k.float().mT * 0.125, dim=-1).to(q.dtype) @ v

    result = fused(attention, *(t.to(dtype) for t in qkv())).fused()
    assert result.sites[0].spec.dtype is dtype
    budget = 1e-3 if dtype is torch.float16 else 8e-3
    oracle = F.scaled_dot_product_attention(*(t.double() for t in result.inputs))
    assert (result.outputs[0].double() - oracle).norm() <= budget * oracle.norm()

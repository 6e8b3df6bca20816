"""Operators that Inductor writes Metal for: compiled, run from that text, and equal to the same program on the CPU.

A case is a program over tensors and its inputs, small and odd in size so that the last threadgroup is not full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from inductor_mps_attention import simulator

Program = Callable[..., Any]
special = torch.special
numbers = torch.Generator().manual_seed(20)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=numbers).to(dtype)


def within(low: float, high: float, *shape: int) -> Tensor:
    return torch.rand(shape, generator=numbers) * (high - low) + low


def whole(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.randint(low, high, shape, generator=numbers).to(dtype)


def coins(*shape: int) -> Tensor:
    return torch.rand(shape, generator=numbers) > 0.5


POINTWISE: dict[str, tuple[Program, Tensor]] = {
    "sin, cos, tan": (lambda x: (x.sin(), x.cos(), x.tan()), within(-1.4, 1.4, 7, 33)),
    "asin, acos, atan, tanh": (lambda x: (x.asin(), x.acos(), x.atan(), x.tanh()), within(-1, 1, 77)),
    "exp, exp2, expm1": (lambda x: (x.exp(), x.exp2(), x.expm1()), normal(77)),
    "log, log2, log10, log1p": (lambda x: (x.log(), x.log2(), x.log10(), x.log1p()), within(0.01, 9, 77)),
    "logit": (torch.logit, within(0.01, 0.99, 77)),
    "roots": (lambda x: (x.sqrt(), x.rsqrt(), x.reciprocal()), within(0.1, 9, 77)),
    "erf, erfc, erfinv": (lambda x: (x.erf(), x.erfc(), x.erfinv()), within(-0.99, 0.99, 77)),
    "rounding": (lambda x: (x.floor(), x.ceil(), x.trunc(), x.round(), x.frac()), normal(77) * 5),
    "signs": (lambda x: (x.abs(), x.neg(), x.sign(), torch.signbit(x)), normal(77)),
    "not a number": (lambda x: (x.isnan(), x.isinf(), x.nan_to_num(3.0)), torch.tensor([1.0, torch.nan, -torch.inf])),
    "clamp": (lambda x: x.clamp(-0.5, 0.7), normal(77)),
    "integer powers": (lambda x: (x.square(), x**3, x**-2), within(0.5, 2, 77)),
    "relu and its kin": (lambda x: (F.relu(x), F.leaky_relu(x), F.elu(x), F.hardtanh(x)), normal(77)),
    "gelu": (lambda x: (F.gelu(x), F.gelu(x, approximate="tanh")), normal(77)),
    "silu, mish, softplus": (lambda x: (F.silu(x), F.mish(x), F.softplus(x)), normal(77)),
    "sigmoids": (lambda x: (x.sigmoid(), F.logsigmoid(x), F.hardsigmoid(x), F.hardswish(x)), normal(77) * 3),
}

SPECIAL: dict[str, tuple[Program, Tensor]] = {
    "i0, i0e": (lambda x: (special.i0(x), special.i0e(x)), normal(77) * 3),
    "i1, i1e": (lambda x: (special.i1(x), special.i1e(x)), normal(77) * 3),
    "bessel_j": (lambda x: (special.bessel_j0(x), special.bessel_j1(x)), within(0.1, 9, 77)),
    "bessel_y": (lambda x: (special.bessel_y0(x), special.bessel_y1(x)), within(0.5, 9, 77)),
    "modified_bessel_i": (lambda x: (special.modified_bessel_i0(x), special.modified_bessel_i1(x)), within(0, 3, 77)),
    "modified_bessel_k": (lambda x: (special.modified_bessel_k0(x), special.modified_bessel_k1(x)), within(1, 4, 77)),
    "scaled_modified_bessel_k": (lambda x: special.scaled_modified_bessel_k0(x), within(1, 4, 77)),
    "spherical_bessel_j0": (special.spherical_bessel_j0, within(0.1, 4, 77)),
    "lgamma": (torch.lgamma, within(0.5, 9, 77)),
    "digamma": (torch.digamma, within(0.5, 9, 77)),
    "polygamma": (lambda x: torch.polygamma(2, x), within(1, 9, 77)),
    "zeta": (lambda x: special.zeta(x + 1, x), within(1, 4, 77)),
    "sinc": (torch.sinc, normal(77)),
    "entr": (special.entr, within(0.1, 2, 77)),
    "log_ndtr": (special.log_ndtr, within(-3, 3, 77)),
    "xlog1py": (lambda x: special.xlog1py(x, x + 1), within(0, 2, 77)),
    "chebyshev_polynomial_t": (lambda x: special.chebyshev_polynomial_t(x, 4), within(-0.9, 0.9, 77)),
    "hermite_polynomial_h": (lambda x: special.hermite_polynomial_h(x, 3), within(-0.9, 0.9, 77)),
}

BINARY: dict[str, tuple[Program, Tensor, Tensor]] = {
    "arithmetic": (lambda x, y: (x + y, x - y, x * y, x / y), normal(7, 33), within(1, 2, 7, 33)),
    "scaled add": (lambda x, y: torch.add(x, y, alpha=2.5), normal(77), normal(77)),
    "atan2": (torch.atan2, normal(77), normal(77)),
    "pow": (torch.pow, within(0.1, 2, 77), normal(77)),
    "remainders": (lambda x, y: (torch.fmod(x, y), torch.remainder(x, y)), normal(77) * 5, within(1, 2, 77)),
    "maximum, minimum": (lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), normal(77), normal(77)),
    "comparisons": (lambda x, y: (x < y, x <= y, x == y, x != y, x > y, x >= y), whole(0, 4, 77), whole(0, 4, 77)),
    "floor division": (
        lambda x, y: (x // y, torch.div(x, y, rounding_mode="trunc")),
        whole(-50, 50, 77),
        whole(1, 9, 77),
    ),
    "integer remainder": (lambda x, y: x % y, whole(-50, 50, 77), whole(1, 9, 77)),
    "bits": (
        lambda x, y: (x & y, x | y, x ^ y, ~x),
        whole(0, 99, 77, dtype=torch.int32),
        whole(0, 99, 77, dtype=torch.int32),
    ),
    "shifts": (lambda x, y: (x << y, x >> y), whole(0, 99, 77), whole(0, 5, 77)),
    "logic": (lambda x, y: (x & y, x | y, torch.logical_not(x)), coins(77), coins(77)),
    "broadcast row and column": (lambda x, y: x * y + x, normal(7, 1), normal(1, 33)),
    "broadcast a scalar tensor": (lambda x, y: x * y, normal(5, 9), normal(1).squeeze()),
    "mixed types": (lambda x, y: x + y, normal(77, dtype=torch.float16), normal(77)),
    "integer and float": (lambda x, y: x * y, whole(0, 9, 77), normal(77)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), normal(77), normal(77)),
}

REDUCTIONS: dict[str, tuple[Program, Tensor]] = {
    "sum of all": (torch.sum, normal(9, 33)),
    "sum of rows": (lambda x: x.sum(-1), normal(9, 33)),
    "sum of columns": (lambda x: x.sum(0), normal(9, 33)),
    "sum over two of three axes": (lambda x: x.sum((0, 2), keepdim=True), normal(5, 9, 7)),
    "sum longer than a threadgroup": (lambda x: x.sum(-1), normal(3, 2500)),
    "mean, variance": (lambda x: (x.mean(-1), x.var(-1), x.std(-1)), normal(9, 33)),
    "product": (lambda x: x.prod(-1), within(0.8, 1.2, 9, 33)),
    "largest, smallest": (lambda x: (x.amax(-1), x.amin(0)), normal(9, 33)),
    "largest with its index": (lambda x: x.max(-1), normal(9, 33)),
    "argmax, argmin": (lambda x: (x.argmax(-1), x.argmin(0)), normal(9, 33)),
    "argmax longer than a threadgroup": (lambda x: x.argmax(-1), normal(3, 2500)),
    "any, all": (lambda x: (x.any(-1), x.all(-1)), coins(9, 5)),
    "integer sum": (lambda x: x.sum(-1), whole(-(2**40), 2**40, 9, 33)),
    "integer largest": (lambda x: x.amax(-1), whole(-99, 99, 9, 33)),
    "count": (lambda x: (x > 0).sum(-1), normal(9, 33)),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), normal(9, 33)),
    "logsumexp": (lambda x: x.logsumexp(-1), normal(9, 33)),
    "softmax": (lambda x: F.softmax(x, -1), normal(9, 33)),
    "softmax over columns": (lambda x: F.softmax(x, 0), normal(9, 33)),
    "softmax longer than a threadgroup": (lambda x: F.softmax(x, -1), normal(2, 2500)),
    "log softmax": (lambda x: F.log_softmax(x, -1), normal(9, 33)),
    "layer norm": (lambda x: F.layer_norm(x, (33,)), normal(9, 33)),
    "group norm": (lambda x: F.group_norm(x, 2), normal(3, 4, 11)),
    "rms norm": (lambda x: F.rms_norm(x, (33,)), normal(9, 33)),
    "cumsum": (lambda x: x.cumsum(1) + 1, normal(4, 9)),
    "cumulative product": (lambda x: x.cumprod(0) * 2, within(0.5, 1.5, 9, 4)),
}

MOVEMENT: dict[str, tuple[Any, ...]] = {
    "transposed copy": (lambda x: x.mT.contiguous() + 1, normal(7, 33)),
    "permuted": (lambda x: x.permute(2, 0, 1) * 2, normal(3, 5, 7)),
    "a view with steps": (lambda x: x[1:, ::3] + 1, normal(7, 33)),
    "flip, roll": (lambda x: (x.flip(-1), x.roll(3, -1)), normal(7, 33)),
    "cat, stack": (lambda x, y: (torch.cat([x, y], -1), torch.stack([x, x * 2])), normal(5, 7), normal(5, 4)),
    "split and swapped": (lambda x: torch.cat(x.chunk(3, -1)[::-1], -1), normal(4, 33)),
    "padding": (lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), normal(5, 7)),
    "expand, repeat": (lambda x: (x.expand(4, 7) + 1, x.repeat(2, 3)), normal(1, 7)),
    "triangle": (lambda x: (x.tril(), x.triu(1)), normal(9, 9)),
    "unfold": (lambda x: x.unfold(-1, 4, 2) * 2, normal(3, 12)),
    "row index": (lambda x, i: x[i] + 1, normal(9, 5), torch.tensor([8, 0, -1, 3, 3])),
    "two indices": (lambda x, i, j: x[i, j] * 2, normal(9, 5), whole(0, 9, 6), whole(0, 5, 6)),
    "index select": (lambda x, i: x.index_select(1, i) * 2, normal(9, 5), whole(0, 5, 3)),
    "gather": (lambda x, i: x.gather(1, i) * 2, normal(9, 5), whole(0, 5, 9, 3)),
    "scatter": (lambda x, i: torch.zeros(9, 5, device=x.device).scatter(1, i, x), normal(9, 1), whole(0, 5, 9, 1)),
    "scatter add": (lambda x, i: torch.zeros(3, device=x.device).scatter_add(0, i, x), normal(99), whole(0, 3, 99)),
    "index put": (lambda x, i: x.index_put((i,), torch.zeros_like(x[:3])), normal(9, 5), torch.tensor([2, 0, 7])),
    "index add": (lambda x, i: torch.ones_like(x[:4]).index_add(0, i, x), normal(9, 5), whole(0, 4, 9)),
    "one hot": (lambda i: F.one_hot(i, 6) * 2, whole(0, 6, 9)),
    "where": (lambda x, y: torch.where(x > y, x.sin(), y * 2), normal(7, 33), normal(7, 33)),
    "masked fill": (lambda x, m: x.masked_fill(m, -1e9), normal(7, 33), coins(7, 33)),
    "embedding": (lambda w, i: F.embedding(i, w) * 2, normal(9, 5), whole(0, 9, 4, 3)),
    "arange, full, eye": (lambda x: x + torch.arange(7, device=x.device) + torch.eye(7, device=x.device), normal(7, 7)),
    "max pool": (lambda x: F.max_pool2d(x, 3, 2, 1) + 1, normal(2, 3, 9, 11)),
    "average pool": (lambda x: F.avg_pool2d(x, 2) + 1, normal(2, 3, 8, 6)),
    "nearest upsampling": (lambda x: F.interpolate(x, scale_factor=2.0) + 1, normal(1, 2, 4, 5)),
    "bilinear upsampling": (lambda x: F.interpolate(x, size=(7, 9), mode="bilinear"), normal(1, 2, 4, 5)),
    "a matrix product between": (lambda x, y: (x.sin() @ y).relu(), normal(5, 7), normal(7, 3)),
    "cross entropy": (F.cross_entropy, normal(9, 13), whole(0, 13, 9)),
    "in place": (lambda x: x.clone().add_(1).mul_(x).clamp_(min=0), normal(77)),
}

TYPES: dict[str, tuple[Any, ...]] = {
    "to half and back": (lambda x: x.half().float() + 1, normal(77)),
    "to bfloat16 and back": (lambda x: x.bfloat16().float() + 1, normal(77)),
    "to integers": (
        lambda x: (x.long(), x.int(), x.short(), x.to(torch.int8), x.abs().to(torch.uint8)),
        normal(77) * 9,
    ),
    "to bool": (lambda x: (x.bool(), (x > 0).float()), whole(-1, 2, 77)),
    "bits of a float": (lambda x: x.view(torch.int32) + 1, normal(77)),
    "bool arithmetic": (lambda x, y: x * y + x, coins(77), whole(0, 9, 77)),
    **{
        f"{name} of {dtype}": (program, normal(9, 33, dtype=dtype))
        for dtype in (torch.float16, torch.bfloat16)
        for name, program in {
            "pointwise": lambda x: F.gelu(x) * 2 - x.sigmoid(),
            "softmax": lambda x: F.softmax(x, -1),
            "layer norm": lambda x: F.layer_norm(x, (33,)),
            "sum": lambda x: x.sum(-1),
            "argmax": lambda x: x.argmax(-1),
        }.items()
    },
}

CASES = {**POINTWISE, **SPECIAL, **BINARY, **REDUCTIONS, **MOVEMENT, **TYPES}
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}


def assert_results_agree(got: Any, wanted: Any) -> None:
    """Both are a tensor or a tuple of tensors, equal in dtype and shape, and in value to the coarsest type in play."""
    got, wanted = ([r] if isinstance(r, Tensor) else list(r) for r in (got, wanted))
    for there, here in zip(got, wanted, strict=True):
        assert there.is_mps
        tolerance = TOLERANCE.get(here.dtype, 0.0)
        torch.testing.assert_close(there.detach().cpu(), here.detach(), atol=tolerance, rtol=tolerance, equal_nan=True)


def on_device(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tree_map_only(Tensor, lambda t: t.to("mps"), inputs)


@pytest.mark.parametrize("name", CASES)
def test_operator_through_its_metal_text(name):
    program, *inputs = CASES[name]
    simulator.reset_shaders()
    with simulator.options(poison=True), torch.no_grad():
        got = torch.compile(program, fullgraph=True, dynamic=False)(*on_device(tuple(inputs)))
    assert simulator.shaders(), "nothing was written in Metal, so nothing was tested"
    assert_results_agree(got, program(*inputs))


GRADIENTS: dict[str, tuple[Any, ...]] = {
    "softmax": (lambda x: F.softmax(x, -1).square(), normal(9, 33)),
    "layer norm with weights": (
        lambda x, w, b: F.layer_norm(x, (33,), w, b).sin(),
        normal(9, 33),
        normal(33),
        normal(33),
    ),
    "rms norm with a weight": (lambda x, w: F.rms_norm(x, (33,), w).sin(), normal(9, 33), normal(33)),
    "gelu of a product": (lambda x, w: F.gelu(x @ w), normal(5, 7), normal(7, 3)),
    "embedding": (lambda w: F.embedding(torch.tensor([1, 1, 3, 0, 1], device=w.device), w).sin(), normal(9, 5)),
    "gather": (lambda x: x.gather(1, (x > 0).long()).sin(), normal(9, 5)),
    "max pool": (lambda x: F.max_pool2d(x.sin(), 2), normal(2, 3, 8, 6)),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.arange(9, device=x.device)), normal(9, 13)),
    "where and a view": (lambda x, y: torch.where(x > 0, x * y, y)[:, ::2], normal(9, 5), normal(9, 5)),
    "broadcast": (lambda x, y: (x * y).tanh(), normal(7, 1), normal(1, 33)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_through_their_metal_text(name):
    program, *inputs = GRADIENTS[name]

    def gradients(function: Program, leaves: list[Tensor]) -> list[Tensor]:
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]
        function(*leaves).sum().backward()
        return [leaf.grad for leaf in leaves]

    simulator.reset_shaders()
    got = gradients(torch.compile(program, fullgraph=True, dynamic=False), list(on_device(tuple(inputs))))
    assert len(simulator.shaders()) == 2, "the backward graph was not written in Metal"
    assert_results_agree(got, gradients(program, inputs))


DYNAMIC: dict[str, Program] = {
    "pointwise": lambda x: x.sin() * x.shape[0],
    "softmax": lambda x: F.softmax(x, -1),
    "layer norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "sum of columns": lambda x: x.sum(0),
    "argmax": lambda x: x.argmax(-1),
    "causal mask": lambda x: x.masked_fill(torch.arange(x.shape[1], device=x.device) > x.shape[0], 0.0),
    "flattened and split": lambda x: x.flatten()[: x.shape[1]] * 2,
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_one_text_serves_all_sizes(name):
    program = DYNAMIC[name]
    compiled = torch.compile(program, fullgraph=True, dynamic=True)
    simulator.reset_shaders()
    for rows, columns in ((5, 33), (17, 70), (3, 1500)):
        x = normal(rows, columns)
        assert_results_agree(compiled(x.to("mps")), program(x))
    assert len(simulator.shaders()) == 1


# Other numbers than the CPU's come out, from the kernels' own Philox generator: so their distribution is compared.
@pytest.mark.parametrize(
    ("draw", "mean", "deviation"),
    [
        (lambda x: torch.rand_like(x), 0.5, 12**-0.5),
        (lambda x: torch.randn_like(x) * 2 + 1, 1.0, 2.0),
        (lambda x: F.dropout(x + 1, 0.25), 1.0, (0.25 / 0.75) ** 0.5),
        (lambda x: torch.randint_like(x, 0, 10).float(), 4.5, 8.25**0.5),
        (lambda x: (torch.rand_like(x) < 0.3).float(), 0.3, 0.21**0.5),
    ],
    ids=["rand", "randn", "dropout", "randint", "bernoulli"],
)
def test_random_numbers_are_distributed_right_and_repeat_with_their_seed(draw, mean, deviation):
    def sample(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return compiled(torch.zeros(100, 100, device="mps")).cpu()

    simulator.reset_shaders()
    compiled = torch.compile(draw, fullgraph=True, dynamic=False)
    first = sample(1)
    assert simulator.shaders()
    assert abs(first.mean().item() - mean) < 5 * deviation / 100
    assert abs(first.std().item() - deviation) < 0.05 * deviation + 0.01
    neighbours = (first - mean)[:, 1:] * (first - mean)[:, :-1]
    assert abs(neighbours.mean().item()) < 5 * deviation**2 / 100
    assert torch.equal(first, sample(1))
    assert not torch.equal(first, sample(2))

"""The shaders that Inductor's own MPS backend writes are executed from their text and agree with eager on the CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from inductor_mps_attention import simulator
from inductor_mps_attention.simulator.metal.kernel import Kernel

INDICES = torch.randint(0, 100, (50,), generator=torch.Generator().manual_seed(1))


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def wide_ints(*shape: int) -> torch.Tensor:
    return torch.randint(-50, 50, shape)


# name: (function, inputs, tolerance relative to 1 + |expected|)
CASES = {
    "softmax": (lambda x: torch.softmax(x * 2, -1), [floats(64, 300)], 1e-6),
    "softmax in bfloat16": (lambda x: torch.softmax(x, -1), [floats(16, 100, dtype=torch.bfloat16)], 8e-3),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (512,), w, b),
        [floats(16, 512), floats(512), floats(512)],
        2e-6,
    ),
    "gelu and sine": (lambda x: F.gelu(x) + x.sin(), [floats(1000)], 1e-6),
    "sum of a long row": (lambda x: x.sum(-1), [floats(8, 5000)], 1e-4),
    "variance": (lambda x: x.var(-1), [floats(8, 3000)], 1e-5),
    "argmax": (lambda x: x.argmax(-1), [floats(16, 777)], 0),
    "half product": (
        lambda x, y: (x * y).relu(),
        [floats(333, dtype=torch.float16), floats(333, dtype=torch.float16)],
        1e-3,
    ),
    "int64 division": (lambda x, y: x * 3 // (y.abs() + 1) + x % 7, [wide_ints(100), wide_ints(100)], 0),
    "special functions": (
        lambda x: torch.erf(x) + torch.lgamma(x.abs() + 1) + torch.special.i0(x) + torch.digamma(x.abs() + 0.5),
        [floats(500)],
        1e-4,
    ),
    "any, all, prod, amin": (
        lambda x: ((x > 0).any(-1), (x > -9).all(-1), x.prod(-1), x.amin(-1)),
        [floats(32, 64)],
        1e-5,
    ),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), [floats(10, 2000)], 1e-6),
    "powers": (
        lambda x, y: torch.pow(x.abs(), y) + torch.atan2(x, y) + torch.fmod(x, y),
        [floats(300), floats(300)],
        1e-5,
    ),
    "strided and rolled": (lambda x: torch.where(x > 0, x, x.mT).roll(3, 0), [floats(40, 40)], 0),
    "gather with bounds check": (lambda x, i: x[i] * 2, [floats(100, 7), INDICES], 0),
    "cross entropy": (lambda x, i: F.cross_entropy(x, i), [floats(50, 100), INDICES], 1e-6),
    "random numbers": (lambda x: (torch.rand_like(x) < 2).to(torch.float32) + x, [floats(64)], 1e-6),
}


def worst(actual: torch.Tensor, expected: torch.Tensor) -> float:
    actual, expected = actual.cpu().double(), expected.double()
    return ((actual - expected).abs() / (1 + expected.abs())).max().item()


@pytest.mark.parametrize("name", CASES)
def test_inductors_shaders_agree_with_eager(name: str):
    function, inputs, tolerance = CASES[name]
    simulator.reset_shaders()
    results = torch.compile(function)(*[tensor.to("mps") for tensor in inputs])
    expected = function(*inputs)
    if isinstance(expected, torch.Tensor):
        results, expected = (results,), (expected,)
    assert simulator.shaders(), "no shader was compiled"
    errors = [worst(result, reference) for result, reference in zip(results, expected, strict=True)]
    assert max(errors) <= tolerance


# Upstream reduces over the lanes that are left in the last simdgroup of a row, which Metal defines; it shuffles 64-bit
# sums over them too, where c10/metal/reduction_utils.h relies on absent lanes giving zeros; and it lets every thread of
# a reduction store the result: the same value.
ALLOWED_NOTES = {"divergent_collective", "inactive_lane", "same_value_write"}


@pytest.mark.parametrize("name", CASES)
def test_check_mode_is_silent_on_inductors_own_shaders(name: str, monkeypatch: pytest.MonkeyPatch):
    notes: set[str] = set()
    call = Kernel.__call__

    def noted(kernel: Kernel, *args: object, **options: object) -> None:
        call(kernel, *args, **options)
        notes.update(note.kind for note in kernel.notes)

    monkeypatch.setattr(Kernel, "__call__", noted)
    function, inputs, tolerance = CASES[name]
    with simulator.options(check="full"):
        results = torch.compile(function)(*[tensor.to("mps") for tensor in inputs])
    expected = function(*inputs)
    if isinstance(expected, torch.Tensor):
        results, expected = (results,), (expected,)
    errors = [worst(result, reference) for result, reference in zip(results, expected, strict=True)]
    assert max(errors) <= max(tolerance, 1e-6)
    assert notes <= ALLOWED_NOTES


def test_an_index_out_of_range_is_reported_by_the_shader():
    function = torch.compile(lambda x, i: x[i] * 2)
    with pytest.raises(simulator.SimulatorError, match="Index 12 out of range"):
        function(floats(10, 4).to("mps"), torch.tensor([3, 12]).to("mps"))


def test_sizes_that_change_reach_the_shader_as_integers():
    function = torch.compile(lambda x: torch.softmax(x, -1) + x.size(0), dynamic=True)
    for rows, columns in ((3, 40), (5, 333), (7, 1500)):
        x = floats(rows, columns)
        assert worst(function(x.to("mps")), torch.softmax(x, -1) + rows) < 1e-6


def test_gradients_of_a_small_layer():
    layer = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.GELU(), torch.nn.LayerNorm(20))
    x = floats(9, 12)
    layer(x).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    layer.to("mps")
    torch.compile(layer)(x.to("mps")).square().sum().backward()
    assert max(worst(p.grad, e) for p, e in zip(layer.parameters(), expected, strict=True)) < 5e-5

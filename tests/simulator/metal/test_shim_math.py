"""Metal's library functions on numbers: float and half results against numpy in float64, in units of the last place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inductor_mps_attention.simulator.metal import compile_shader

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"

# name -> (numpy function of float64, low, high, allowed ulps in float)
UNARY = {
    "exp": (np.exp, -80, 80, 2),
    "exp2": (np.exp2, -120, 120, 2),
    "exp10": (lambda x: 10.0**x, -30, 30, 1),
    "log": (np.log, 1e-6, 1e6, 2),
    "log2": (np.log2, 1e-6, 1e6, 2),
    "log10": (np.log10, 1e-6, 1e6, 3),
    "sqrt": (np.sqrt, 0, 1e6, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-3, 1e6, 1.5),
    "sin": (np.sin, -100, 100, 2),
    "cos": (np.cos, -100, 100, 2),
    "tan": (np.tan, -1.5, 1.5, 2),
    "asin": (np.arcsin, -1, 1, 2),
    "acos": (np.arccos, -1, 1, 2),
    "atan": (np.arctan, -50, 50, 2),
    "sinh": (np.sinh, -20, 20, 3),
    "cosh": (np.cosh, -20, 20, 3),
    "tanh": (np.tanh, -10, 10, 3),
    "asinh": (np.arcsinh, -50, 50, 3),
    "acosh": (np.arccosh, 1.01, 50, 3),
    "atanh": (np.arctanh, -0.99, 0.99, 3),
    "sinpi": (lambda x: np.sin(np.pi * x), -0.99, 0.99, 2),
    "cospi": (lambda x: np.cos(np.pi * x), -0.4, 0.4, 2),
    "floor": (np.floor, -50, 50, 0),
    "ceil": (np.ceil, -50, 50, 0),
    "trunc": (np.trunc, -50, 50, 0),
    "rint": (np.rint, -50, 50, 0),
    "round": (lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5), -50, 50, 0),
    "fabs": (np.abs, -50, 50, 0),
    "abs": (np.abs, -50, 50, 0),
    "sign": (np.sign, -50, 50, 0),
    "saturate": (lambda x: np.clip(x, 0, 1), -2, 2, 0),
    "fract": (lambda x: x - np.floor(x), -50, 50, 1),
}
BINARY = {
    "pow": (np.power, 0.01, 20, 2),
    "powr": (np.power, 0.01, 20, 2),
    "atan2": (np.arctan2, -20, 20, 2),
    "fmod": (np.fmod, 0.5, 20, 0),
    "fmax": (np.maximum, -20, 20, 0),
    "fmin": (np.minimum, -20, 20, 0),
    "max": (np.maximum, -20, 20, 0),
    "min": (np.minimum, -20, 20, 0),
    "copysign": (np.copysign, -20, 20, 0),
    "step": (lambda edge, x: np.where(x < edge, 0.0, 1.0), -2, 2, 0),
}
COUNT = 4096


NAMES = [*UNARY, *BINARY]
VECTOR_NAMES = NAMES[::4]


def _kernels() -> str:
    """A kernel for each element type that applies the function number `which`; the namespaces take turns."""
    text = HEADER
    for kind, names in (("float", NAMES), ("half", NAMES), ("float4", VECTOR_NAMES)):
        text += f"kernel void of_{kind}(device {kind}* out, device const {kind}* x, device const {kind}* y,"
        text += " constant int& which, uint i [[thread_position_in_grid]]) {\n switch (which) {\n"
        for name in names:
            space = ("", "precise::", "fast::")[NAMES.index(name) % 3]
            second = ", y[i]" if name in BINARY else ""
            text += f"  case {NAMES.index(name)}: out[i] = {space}{name}(x[i]{second}); break;\n"
        text += " }\n}\n"
    return text


@pytest.fixture(scope="module")
def library():
    return compile_shader(_kernels())


def _inputs(low: float, high: float, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.empty(COUNT).uniform_(low, high, generator=generator).to(dtype) for _ in range(2)]


def _ulps(got: torch.Tensor, exact: np.ndarray, dtype: type) -> float:
    limit = float(np.finfo(dtype).tiny)
    spacing = np.spacing(np.maximum(np.abs(exact), limit).astype(dtype)).astype(np.float64)
    return float(np.max(np.abs(got.double().numpy() - exact) / spacing))


# Where a half can hold arguments and results.
HALF_RANGE = (0.1, 4.0)
NARROW_IN_HALF = ["exp", "exp2", "exp10", "sinh", "cosh", "sqrt", "log", "log2", "log10", "rsqrt", "pow", "powr"]


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_within_its_ulps(library, name: str):
    function, low, high, allowed = (UNARY | BINARY)[name]
    for kind, dtype in (("float", torch.float32), ("float4", torch.float32), ("half", torch.float16)):
        if kind == "float4" and name not in VECTOR_NAMES:
            continue
        limits = HALF_RANGE if kind == "half" and name in NARROW_IN_HALF else (low, high)
        inputs = _inputs(*limits, dtype)
        out = torch.full((COUNT,), float("nan"), dtype=dtype)
        threads = COUNT // 4 if kind == "float4" else COUNT
        getattr(library, f"of_{kind}")(out, *inputs, NAMES.index(name), threads=threads, arg_casts={3: "int32"})
        exact = function(*[x.double().numpy() for x in inputs][: 2 if name in BINARY else 1])
        if kind == "half":
            assert _ulps(out, exact, np.float16) <= 0.51, kind
        else:
            assert _ulps(out, exact, np.float32) <= allowed + 0.01, kind


def test_a_nan_loses_against_a_number_in_max_and_min_and_clamp():
    library = compile_shader(
        HEADER + "kernel void k(device float* out, constant float& n) {"
        " out[0] = max(n, 1.0f); out[1] = max(1.0f, n); out[2] = min(n, 1.0f);"
        " out[3] = min(1.0f, n); out[4] = clamp(n, 2.0f, 3.0f); out[5] = max(n, n);"
        " out[6] = max(float2(n, 1.0f), float2(2.0f, n)).y; }"
    )
    out = torch.zeros(7)
    library.k(out, float("nan"), threads=1)
    assert out[:5].tolist() == [1, 1, 1, 1, 2]
    assert out[5].isnan()
    assert out[6] == 1


def test_ternary_functions_and_out_parameters():
    library = compile_shader(
        HEADER
        + """kernel void k(device float* out) {
  out[0] = fma(1.0000001f, 1.0000001f, -1.0f);
  out[1] = mix(2.0f, 4.0f, 0.25f);
  out[2] = clamp(5.0f, 0.0f, 1.0f);
  out[3] = smoothstep(0.0f, 1.0f, 0.25f);
  float c;
  out[4] = sincos(1.0f, c);
  out[5] = c;
  int e;
  out[6] = frexp(48.0f, e);
  out[7] = float(e);
  float whole;
  out[8] = modf(3.75f, whole);
  out[9] = whole;
  out[10] = ldexp(0.75f, 4);
  out[11] = median3(3.0f, 1.0f, 2.0f);
  float4 v = fma(float4(1, 2, 3, 4), 2.0f, float4(1.0f));
  out[12] = v.w;
  out[13] = dot(float3(1, 2, 3), float3(4, 5, 6));
  out[14] = length(float2(3, 4));
  out[15] = cross(float3(1, 0, 0), float3(0, 1, 0)).z;
}
"""
    )
    out = torch.zeros(16)
    library.k(out, threads=1)
    third = float(np.float64(np.float32(1.0000001)) ** 2 - 1)
    expected = [third, 2.5, 1, 0.15625, np.sin(1), np.cos(1), 0.75, 6, 0.75, 3, 12, 2, 9, 32, 5, 1]
    np.testing.assert_allclose(out.numpy(), expected, rtol=2e-7)


def test_half_arithmetic_rounds_after_each_operation():
    """With excess precision a * b + c would be rounded once."""
    library = compile_shader(
        HEADER + "kernel void k(device half* out, device const half* a, device const half* b,"
        " device const half* c, uint i [[thread_position_in_grid]]) { out[i] = a[i] * b[i] + c[i]; }"
    )
    a, b, c = (torch.randn(COUNT, generator=torch.Generator().manual_seed(s)).half() for s in range(3))
    out = torch.zeros(COUNT).half()
    library.k(out, a, b, c, threads=COUNT)
    assert np.array_equal(out.numpy(), a.numpy() * b.numpy() + c.numpy())


def test_bfloat_rounds_to_nearest_even_and_keeps_nan():
    library = compile_shader(
        HEADER + "kernel void k(device bfloat* out, device const float* x,"
        " uint i [[thread_position_in_grid]]) { out[i] = bfloat(x[i]); }"
        "kernel void product(device bfloat* out, device const bfloat* x,"
        " uint i [[thread_position_in_grid]]) { out[i] = x[i] * x[i] + x[i]; }"
    )
    bits = torch.tensor(
        [0x3F808000, 0x3F818000, 0x3F808001, 0x7F800001, 0x7F7FFFFF, 0x7F800000, 1, -1], dtype=torch.int32
    )
    x = torch.cat([bits.view(torch.float32), torch.randn(COUNT)])
    out = torch.zeros(len(x), dtype=torch.bfloat16)
    library.k(out, x, threads=len(x))
    assert torch.equal(out.isnan(), x.isnan())
    assert torch.equal(out[~x.isnan()], x.bfloat16()[~x.isnan()])
    stepwise = out * out + out
    result = torch.zeros_like(out)
    library.product(result, out, threads=len(x))
    assert torch.equal(result.nan_to_num(), stepwise.nan_to_num())


def test_integer_functions():
    library = compile_shader(
        HEADER
        + """kernel void k(device int* out, device const int* x, device const int* y,
              uint i [[thread_position_in_grid]]) {
  const int a = x[i], b = y[i];
  const uint u = uint(a), v = uint(b);
  const int values[16] = {popcount(a), clz(a), ctz(a), int(reverse_bits(u)), mulhi(a, b), int(mulhi(u, v)),
    int(rotate(u, v)),
    int(absdiff(a, b)), addsat(a, b), int(subsat(u, v)), hadd(a, b), int(rhadd(u, v)), extract_bits(a, 3u, 7u),
    int(extract_bits(u, 3u, 7u)), insert_bits(a, b, 4u, 8u), clamp(a, -5, 5)};
  for (int k = 0; k < 16; k++) out[i * 16 + k] = values[k];
}
"""
    )
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randint(-(2**31), 2**31, (200,), generator=generator).int() for _ in range(2))
    x[:3] = torch.tensor([0, -1, 1])
    out = torch.zeros(200, 16, dtype=torch.int32)
    library.k(out, x, y, threads=200)

    def wrapped(value: int) -> int:
        return (value + 2**31) % 2**32 - 2**31

    for row, a, b in zip(out.tolist(), x.tolist(), y.tolist(), strict=True):
        u, v = a % 2**32, b % 2**32
        text = f"{u:032b}"
        signed_bits = (u >> 3 & 127) - (128 if u >> 9 & 1 else 0)
        expected = [
            text.count("1"),
            len(text) - len(text.lstrip("0")),
            len(text) - len(text.rstrip("0")),
            wrapped(int(text[::-1], 2)),
            a * b >> 32,
            wrapped(u * v >> 32),
            wrapped(u << v % 32 | u >> 32 - v % 32),
            wrapped(abs(a - b)),
            max(min(a + b, 2**31 - 1), -(2**31)),
            wrapped(max(u - v, 0)),
            a + b >> 1,
            wrapped(u + v + 1 >> 1),
            signed_bits,
            u >> 3 & 127,
            wrapped(u & ~0xFF0 | (v & 0xFF) << 4),
            max(min(a, 5), -5),
        ]
        assert row == expected

"""Which calls exist: what Apple's compiler refuses must not compile here either, and what shipping kernels write must.

Each expression is asked about with a detector, `decltype` in a template, so that one compilation answers for all.
"""

from __future__ import annotations

import functools
import re

import pytest
import torch

from inductor_mps_attention.simulator.metal import ShaderCompileError, compile_shader

HEADER = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n"

# Of the variables below. Left: refused by Apple's compiler (missing, or ambiguous).
REFUSED = [
    # bfloat has storage, arithmetic and comparison, but no functions
    "exp(b)", "log2(b)", "metal::fast::exp2(b)", "metal::precise::sqrt(b)", "max(b, b)", "min(b, b)",
    "fma(b, b, b)", "abs(b)", "pow(b, b)", "clamp(b, b, b)", "floor(b)", "exp(b4)", "max(b4, b4)",
    # mixed arguments are ambiguous
    "max(f, h)", "min(h, f)", "max(f, i)", "max(i, u)", "clamp(f, i, i)", "clamp(h, f, f)", "fma(f, h, h)",
    "max(i, l)", "select(f, h, true)", "select(f, i, true)", "mix(h, f, f)", "max(f4, h4)", "exp(i)", "log(u)",
    "sqrt(l)", "atan2(f, h)",
    # lanes exchange 8 to 32 bits
    "simd_sum(b)", "simd_sum(l)", "simd_sum(t)", "simd_shuffle_xor(b, 1)", "simd_shuffle(l, 1)", "simd_max(ul)",
    "simd_shuffle_down(t, 1)", "quad_sum(b)", "simd_broadcast(l4, 0)", "simd_xor(f)", "simd_and(h)",
    # no implicit vector conversions
    "f4 + h4", "f4 = h4", "max(i4, f4)", "dot(f4, h4)",
    # atomics of float have no minimum, those of 64 bits no addition
    "atomic_fetch_min_explicit(&af, f, memory_order_relaxed)",
    "atomic_fetch_or_explicit(&af, f, memory_order_relaxed)",
    "atomic_fetch_add_explicit(&aul, ul, memory_order_relaxed)",
    # a load's element type is the matrix's
    "simdgroup_load(mf, ph)", "simdgroup_store(mf, ph)", "simdgroup_load(mb, pf)",
]  # fmt: skip

ACCEPTED = [
    "exp(f)", "exp(h)", "exp(f4)", "exp(h4)", "pow(f, i)", "max(f, 0.0f)", "max(h, h)", "max(i, 3)",
    "max(u, 3u)", "max(l, l)", "max(s, s)", "max(f4, 0.0f)", "clamp(f4, 0.0f, 1.0f)", "clamp(i, -1, 1)",
    "fma(f4, f, f4)", "abs(i)", "abs(l)", "abs(i4)", "min(u4, u4)", "isnan(b)", "isunordered(b, b)",
    "isinf(h4)", "float(b)", "bfloat(f)", "b + b", "b * f", "b < 0.0f", "b == b", "f = b", "h = f", "f4 * f",
    "f * f4", "f4 * h", "h4 + h", "float4(h4)", "half4(f4)", "bfloat4(f4)", "select(f4, f4, f4 < 0.0f)",
    "simd_sum(f)", "simd_sum(h)", "simd_sum(f4)", "simd_max(i)", "simd_shuffle_xor(u, 1)", "simd_xor(u)",
    "simd_and(i)", "simd_broadcast(h4, 3)", "simd_sum(float(b))", "as_type<uint2>(l)", "as_type<half2>(f)",
    "rsqrt(f)", "metal::fast::exp2(f)", "metal::precise::exp2(h)", "all(f4 == f4)", "any(i4 < 3)",
    "popcount(u)", "ctz(ul)", "mulhi(u, u)", "simdgroup_load(mf, pf, 8, ulong2(0), true)",
    "simdgroup_load(mh, ph, 8, 0, false)", "simdgroup_store(mb, pb, 64)",
    "simdgroup_multiply_accumulate(mf, mb, mb, mf)", "simdgroup_multiply_accumulate(mf, mh, mh, mf)",
    "mf.thread_elements()[0] = f", "atomic_fetch_add_explicit(&af, 1.0f, memory_order_relaxed)",
    "atomic_fetch_add_explicit(&ai, 1, memory_order_relaxed)",
    "atomic_max_explicit(&aul, ul, memory_order_relaxed)",
    "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)",
]  # fmt: skip

VARIABLES = {
    "b": "bfloat", "f": "float", "h": "half", "i": "int", "u": "uint", "l": "long", "ul": "ulong", "s": "short",
    "t": "bool", "b4": "bfloat4", "f4": "float4", "h4": "half4", "i4": "int4", "u4": "uint4", "l4": "long4",
    "mf": "simdgroup_float8x8", "mh": "simdgroup_half8x8", "mb": "simdgroup_bfloat8x8", "pf": "float*",
    "ph": "half*", "pb": "bfloat*", "af": "atomic_float", "ai": "atomic_int", "aul": "atomic_ulong",
}  # fmt: skip


def _on_templates(expression: str) -> str:
    """The variables as calls of templates, so that whether the expression compiles is decided at instantiation."""
    return re.sub(r"(?<![\w.:])(\w+)(?![\w<(])", lambda m: f"a_{m[1]}<T>()" if m[1] in VARIABLES else m[1], expression)


def _question(index: int, expression: str) -> str:
    """compiles_<index><void>(0) returns true_type or false_type."""
    return (
        f"template <class T> auto compiles_{index}(int) -> decltype(void({_on_templates(expression)}), true_type());\n"
        f"template <class T> false_type compiles_{index}(long);\n"
    )


@functools.cache
def _verdicts() -> dict[str, bool]:
    expressions = [*REFUSED, *ACCEPTED]
    text = HEADER + "".join(f"template <class T> thread {kind}& a_{name}();\n" for name, kind in VARIABLES.items())
    text += "".join(_question(index, expression) for index, expression in enumerate(expressions))
    text += "kernel void k(device int* out) {\n"
    text += "".join(f"  out[{i}] = decltype(compiles_{i}<void>(0))::value;\n" for i in range(len(expressions)))
    out = torch.zeros(len(expressions), dtype=torch.int32)
    compile_shader(text + "}\n").k(out, threads=1)
    return dict(zip(expressions, map(bool, out.tolist()), strict=True))


@pytest.mark.parametrize("expression", REFUSED)
def test_what_apple_refuses_does_not_compile(expression: str):
    assert not _verdicts()[expression]


@pytest.mark.parametrize("expression", ACCEPTED)
def test_what_kernels_write_compiles(expression: str):
    assert _verdicts()[expression]


@pytest.mark.parametrize(
    "statement",
    [
        "bfloat x = 0.5f;",
        "bfloat x; x = out[0];",
        "bfloat x = bfloat(1.0f); x += 0.5f;",
        "simdgroup_matrix<float, 4, 4> m;",
        "simdgroup_matrix<int, 8, 8> m;",
        "out[0] = as_type<float>(half(1.0f));",
        "out[0] = as_type<float>(out);",
    ],
)
def test_statements_that_are_errors(statement: str):
    with pytest.raises(ShaderCompileError):
        compile_shader(HEADER + f"kernel void k(device float* out) {{\n {statement}\n}}")

"""Constructs of Metal texts in the field, each executed: they work end to end, not only in the translator."""

from __future__ import annotations

import pytest
import torch

from inductor_mps_attention.simulator.metal import compile_shader

HEADER = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n"

# Each text is the body of a kernel of 32 threads that writes out[0..31]; `before` comes before the kernel.
PROGRAMS = {
    "swizzles": (
        "",
        "float4 v = float4(1, 2, 3, 4); v.xy = v.wz; float2 w = v.zx; w.y += v.xy.y; out[i] = v.x * 10 + w.y;",
        lambda i: 4 * 10 + 4 + 3,
    ),
    "a pointer's swizzle": (
        "float2 last(thread const float4* v) { return v->zw; }",
        "float4 v(0, 1, 2, 3); out[i] = last(&v).y;",
        lambda i: 3,
    ),
    "a template with a functor": (
        "struct Twice { template <typename T> T operator()(T x) const thread { return x * 2; } };"
        " template <typename F> float apply(float x) { F f; return f(x); }",
        "out[i] = apply<Twice>(i);",
        lambda i: 2 * i,
    ),
    "constant tables": (
        "constant float table[4] = {0.5, 1.5, 2.5, 3.5}; constant constexpr int last = 3;",
        "out[i] = table[i & last];",
        lambda i: (i & 3) + 0.5,
    ),
    "one function for two address spaces": (
        "float first(device const float* p) { return p[0]; } float first(threadgroup const float* p) { return p[0]; }",
        "threadgroup float t[32]; t[i] = 5; simdgroup_barrier(mem_flags::mem_threadgroup); out[i] = first(t);",
        lambda i: 5,
    ),
    "a specialisation for each address space": (
        "template <typename P> struct element; template <typename T> struct element<device T*> { using type = T; };"
        " template <typename T> struct element<thread T*> { using type = T; };",
        "element<device float*>::type x = i; out[i] = x;",
        lambda i: i,
    ),
    "an initialised threadgroup variable": (
        "",
        "threadgroup atomic_uint n = {0}; threadgroup int z[4] = {1, 2};"
        " atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed); threadgroup_barrier(mem_flags::mem_threadgroup);"
        " out[i] = atomic_load_explicit(&n, memory_order_relaxed) + z[1] * 100 + z[3];",
        lambda i: 232,
    ),
    "a threadgroup array of vectors": (
        "",
        "threadgroup float4 t[8][2]; t[i / 4][0][i % 4] = i; simdgroup_barrier(mem_flags::mem_threadgroup);"
        " out[i] = t[i / 4][0].w;",
        lambda i: i // 4 * 4 + 3,
    ),
    "half and bfloat literals": (
        "",
        "half h = 0.1h; bfloat b = bfloat(0.1); out[i] = float(h) * 1000 + float(b);",
        lambda i: float(torch.tensor(0.1).half()) * 1000 + float(torch.tensor(0.1).bfloat16()),
    ),
    "an enumeration, and a member that looks like a swizzle": (
        "enum class Mode : uint { a = 3, b }; struct Pair { float ab; int ba[2]; };",
        "Pair p; p.ab = 1; p.ba[1] = uint(Mode::b); out[i] = p.ab + p.ba[1];",
        lambda i: 5,
    ),
    "matrix fragments": (
        "",
        "threadgroup float t[64]; t[i] = i; t[i + 32] = i + 32; simdgroup_barrier(mem_flags::mem_threadgroup);"
        " simdgroup_float8x8 a, b = simdgroup_float8x8(2.0f), c = make_filled_simdgroup_matrix<float, 8>(1.0f);"
        " simdgroup_load(a, t, 8); simdgroup_multiply_accumulate(c, a, b, c); simdgroup_store(c, t, 8);"
        " simdgroup_barrier(mem_flags::mem_threadgroup); out[i] = t[i];",
        lambda i: 2 * i + 1,
    ),
    "lane operations": (
        "",
        "float s = simd_sum(float(i)), m = simd_max(float(i)); out[i] = s + m + simd_shuffle_xor(float(i), ushort(1));",
        lambda i: 496 + 31 + (i ^ 1),
    ),
    "pragmas, attributes and loops": (
        "",
        "float s = 0;\n#pragma clang loop unroll(full)\n"
        "for (int k = 0; k < 4; k++) { [[maybe_unused]] int u = 1; s += k; }"
        " out[i] = s;",
        lambda i: 6,
    ),
    "a namespace, an alias and a nested template": (
        "namespace tools { template <typename T, int N> struct Row { T x[N]; T sum() const { T s = 0;"
        " for (int k = 0; k < N; k++) s += x[k]; return s; } }; } using tools::Row;",
        "Row<Row<float, 2>, 2> r = {{{{1, 2}}, {{3, 4}}}}; out[i] = r.x[0].sum() * 10 + r.x[1].sum();",
        lambda i: 37,
    ),
    "comparisons that look like template brackets": (
        "",
        "int a = 1, b = 2, c = 3; out[i] = (a < b && b > a) + (a < c) * 2 + (b << 1 > c >> 1) * 4;",
        lambda i: 7,
    ),
}


@pytest.mark.parametrize("check", ["off", "full"])
def test_programs_of_the_language_run(check: str):
    source, expected = HEADER, {}
    for number, (before, statements, value) in enumerate(PROGRAMS.values()):
        body = f"{{ {statements} }}"
        source += f"namespace n{number} {{ {before}\nkernel void k{number}(device float* out,"
        source += f" uint i [[thread_index_in_threadgroup]])\n{body} }}\n"
        expected[f"k{number}"] = [float(value(i)) for i in range(32)]
    library = compile_shader(source, check=check)
    results = {}
    for name in expected:
        out = torch.zeros(32)
        library[name](out, threads=32, group_size=32)
        results[name] = out.tolist()
    for (title, _), name in zip(PROGRAMS.items(), expected, strict=True):
        assert results[name] == pytest.approx(expected[name], rel=1e-6), title


def test_instantiated_templates_run_under_their_host_names():
    source = HEADER + (
        "template <typename T, int N> [[kernel]] void fill(device T* out, uint i [[thread_position_in_grid]])"
        " { out[i] = T(N + 0.5); }\n"
        '#define FILL(name, type) template [[host_name("fill_" #name)]] [[kernel]]'
        " decltype(fill<type, 3>) fill<type, 3>;\n"
        "FILL(f32, float)\nFILL(f16, half)\n"
        'template [[host_name("fill_i32")]] kernel void fill<int, 4>(device int* out, uint i);\n'
    )
    library = compile_shader(source)
    for name, dtype, value in (("f32", torch.float32, 3.5), ("f16", torch.float16, 3.5), ("i32", torch.int32, 4)):
        out = torch.zeros(5, dtype=dtype)
        library[f"fill_{name}"](out)
        assert out.tolist() == [value] * 5


def test_threadgroup_arrays_of_a_size_given_at_launch():
    source = HEADER + (
        "kernel void k(device float* out, threadgroup float* t [[threadgroup(0)]],"
        " threadgroup int* u [[threadgroup(1)]], uint i [[thread_index_in_threadgroup]]) {"
        " t[i] = i; u[i] = 1; threadgroup_barrier(mem_flags::mem_threadgroup);"
        " out[i] = t[63 - i] + u[63 - i]; }"
    )
    kernel = compile_shader(source, check="full").k
    out = torch.zeros(64)
    kernel(out, threads=64, group_size=64, threadgroup_bytes={0: 256, 1: 256})
    assert out.tolist() == [64.0 - i for i in range(64)]
    assert kernel.counters["threadgroup_bytes"] == 512


def test_a_quantity_of_the_whole_text_is_not_lost_between_kernels():
    """Kernels of one text share constants and helpers; each has threadgroup variables of its own."""
    source = HEADER + "".join(
        f"kernel void k{n}(device float* out, uint i [[thread_index_in_threadgroup]]) {{ threadgroup float t[{n}];"
        f" if (i < {n}) t[i] = {n}; threadgroup_barrier(mem_flags::mem_threadgroup); out[i] = t[0]; }}\n"
        for n in (8, 16)
    )
    library = compile_shader(source)
    for n in (8, 16):
        out = torch.zeros(32)
        library[f"k{n}"](out, threads=32, group_size=32)
        assert out.tolist() == [float(n)] * 32
        assert library[f"k{n}"].counters["threadgroup_bytes"] == 4 * n

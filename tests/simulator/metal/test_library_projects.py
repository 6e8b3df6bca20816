"""What libraries of many kernels are written with: headers of their own, overloads that Apple's library lacks, kernels
that are instantiated by macros. Each text is small; each construct was refused or read differently before.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inductor_mps_attention.simulator import CheckError
from inductor_mps_attention.simulator.metal import ShaderCompileError, compile_shader

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
SIGNATURE = "kernel void k(device float* out, uint i [[thread_position_in_grid]])"

# Declarations, the value that lane i writes, and what it must be.
CASES = {
    "private functions give bfloat its overloads": (
        "namespace metal { METAL_FUNC bfloat exp2(bfloat v) {\n"
        "  return bfloat(__metal_exp2(float(v), __METAL_MAYBE_FAST_MATH__)); }\n"
        "METAL_FUNC bfloat simd_sum(bfloat v) { return bfloat(__metal_simd_sum(float(v))); } }\n",
        "float(exp2(bfloat(3.0f))) + float(simd_sum(bfloat(1.0f)))",
        lambda i: 40.0,
    ),
    "a fill shuffle takes what the group's other edge holds": (
        "",
        "simd_shuffle_and_fill_down(float(i), 100.0f + i, 3, 8)",
        lambda i: i + 3 if i % 8 < 5 else 100 + i + 3 - 8,
    ),
    "a fill shuffle upwards": (
        "",
        "simd_shuffle_and_fill_up(float(i), 100.0f + i, 2)",
        lambda i: i - 2 if i >= 2 else 100 + i - 2 + 32,
    ),
    "a member template specialised inside its class": (
        "struct Twice { template <typename T> T operator()(T v) thread { return v * 2; }\n"
        "  template <> float operator()(float v) thread { return v * 3; } };\n",
        "Twice()(float(i)) + Twice()(int(i))",
        lambda i: 5.0 * i,
    ),
    "defaults of template parameters with && and ||": (
        "template <typename T> struct Box { T v;\n"
        "  template <typename U, typename = enable_if_t<is_same_v<U, int> || (sizeof(U) < 4 && !is_same_v<U, bool>)>>\n"
        "  constexpr Box(U u) thread : v(u), spare(0) {}\n"
        "  template <typename U, typename = enable_if_t<is_same_v<U, int> || (sizeof(U) < 4 && !is_same_v<U, bool>)>>\n"
        "  constexpr Box(U u) threadgroup : v(u), spare(0) {}\n  T spare; };\n",
        "Box<float>(int(i)).v",
        lambda i: float(i),
    ),
    "braces leave missing elements zero": (
        "",
        "(uint4 {i, 2u, 3u}).w + (float3 {1.0f, float(i)}).z + (uint4 {i, 2u, 3u}).z",
        lambda i: 3.0,
    ),
    "private type predicates, a scope and a log of the project's own": (
        "#include <metal_logging>\nconstant metal::os_log logger(\"project\", \"part\");\n"
        "namespace metal { constexpr constant thread_scope thread_scope_system = thread_scope(4); }\n"
        "inline float logged(float v) { logger.log_debug(\"%f\", v);\n"
        "  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, metal::thread_scope_system); return v; }\n",
        "logged(i) + _disjunction<is_same<float, int>, is_same<int, int>>::value",
        lambda i: i + 1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_spellings_of_libraries_mean_what_they_mean_in_metal(name: str):
    declarations, value, expected = CASES[name]
    out = torch.zeros(32)
    compile_shader(f"{HEADER}{declarations}{SIGNATURE} {{ out[i] = {value}; }}", check="full").k(out, group_size=32)
    assert out.tolist() == [expected(i) for i in range(32)]


INSTANTIATED = """
template <typename T, int N> [[kernel]] void fill(device T* out, constant int (&values)[N] [[buffer(1)]]) {
  for (int i = 0; i < N; ++i) out[i] = values[i];
}
template [[host_name("deduced")]] [[kernel]] void fill(device float* out, constant int (&values)[3] [[buffer(1)]]);
static constant constexpr const int first [[function_constant(010)]];
template <typename T, int N, bool twice> kernel void mark(device T* out) { out[first] = N * (twice ? 2 : 1); }
template <typename T, typename U, int N> kernel void mark(device T* out, device U* other) { out[0] = other[0] + N; }
template [[host_name("values")]] [[kernel]] decltype(mark<float, 5, true>) mark<float, 5, true>;
template [[host_name("types")]] [[kernel]] decltype(mark<float, int, 5>) mark<float, int, 5>;
kernel void coherent_copy(volatile coherent(system) device float* out) { out[1] = out[0]; }
"""


def test_kernels_are_instantiated_as_macros_write_it():
    library = compile_shader(HEADER + INSTANTIATED, function_constants={8: 2})  # 010 is octal
    out = torch.zeros(3)
    library.deduced(out, torch.tensor([1, 2, 3], dtype=torch.int32), threads=1)
    assert out.tolist() == [1, 2, 3]
    library.types(out, torch.tensor([7], dtype=torch.int32), threads=1)
    library.values(out, threads=1)
    library.coherent_copy(out, threads=1)
    assert out.tolist() == [12, 12, 10]


def test_a_fault_inside_a_header_is_reported_with_its_line_and_name(tmp_path: Path):
    # Kernels of such libraries stand in headers; the text itself only instantiates them.
    (tmp_path / "shift.h").write_text(
        "template <typename T> kernel void shift(device T* out, device const T* x,\n"
        "                                        uint i [[thread_position_in_grid]]) {\n"
        "  out[i] = x[i + 1];\n}\n"
    )
    instantiation = 'template [[host_name("shift")]] [[kernel]] decltype(shift<float>) shift<float>;'
    text = f'{HEADER}#include "shift.h"\n{instantiation}'
    library = compile_shader(text, include_dirs=[str(tmp_path)], check="full")
    with pytest.raises(CheckError) as error:
        library.shift(torch.zeros(8), torch.zeros(8), group_size=8)
    (report,) = error.value.reports
    assert (report.kind, report.line) == ("out_of_bounds", 3)
    assert "shift.h" in report.message


def test_tensor_operations_are_refused_by_name():
    include = "#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\n"
    with pytest.raises(ShaderCompileError, match="tensor operations of Metal 4, cannot be simulated") as error:
        compile_shader(HEADER + include + SIGNATURE + " {}")
    assert error.value.line == 3

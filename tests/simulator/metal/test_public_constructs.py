"""Constructs that kernels of public projects are written with, and that a C++ compiler or an earlier engine refused or
read differently. Each runs with and without checks.
"""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from inductor_mps_attention.simulator import CheckError
from inductor_mps_attention.simulator.metal import ShaderCompileError, compile_shader

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
SIGNATURE = "kernel void k(device float* out, device const float* x, uint i [[thread_position_in_grid]])"

# Declarations, the body that sets out[i] from float t = x[i] and i, and the value for each (t, i).
CASES = {
    "elements designated by a range": (
        "template <typename T, int N> T total(T first) {\n"
        "  T s[N] = { [0 ... N - 2] = first, [N - 1] = 10.0h };\n"
        "  T sum = 0; for (int j = 0; j < N; ++j) sum += s[j];\n"
        "  return sum;\n}\n",
        "float last[2] = { [1 ... 1] = -FLT_MAX / 2 }; out[i] = total<float, 4>(t) + (last[0] == 0 ? 0.5f : 0);",
        lambda t, i: 3 * t + 10.5,
    ),
    "members qualified by address spaces": (
        "template <typename T> struct Pair { T v; uint n;\n"
        "  constexpr Pair<T>() = default;\n  constexpr Pair<T>() threadgroup = default;\n"
        "  constexpr Pair(T a, uint b) : v(a), n(b) {}\n"
        "  T twice() const thread { return v * 2; }\n  T twice() const threadgroup { return v * 2; } };\n",
        "threadgroup Pair<float> shared[8]; shared[i % 8] = Pair<float>(t, i);\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup); out[i] = shared[7 - i % 8].twice();",
        lambda t, i: 2 * (7 - i),
    ),
    "integers become bfloat silently, and back": (
        "",
        "bfloat b = 3; b = i; uint u = b; int n = b + 1; b += 1; float f = 1; f += b; out[i] = float(b) + u + n + f;",
        lambda t, i: (i + 1) + i + (i + 1) + (i + 2),
    ),
    "bfloat and an integer make a bfloat": ("", "bfloat b = bfloat(257.0f); out[i] = b * 1 + 1;", lambda t, i: 256.0),
    "a literal arm takes the type of the bfloat arm": (
        "template <typename T> T relu(T v) { return v < 0 ? 0 : v; }\n",
        "bfloat b = bfloat(t + 0.5f); int n = i; float g = n > 2 ? n < 5 ? 0.25f : t : 0;\n"
        "out[i] = float(relu(b)) + float(b > 1 ? b : 1) + (i == 3 ? 1 : 0) + g;",
        lambda t, i: t + 0.5 + max(t + 0.5, 1) + (i == 3) + (0 if i <= 2 else 0.25 if i < 5 else t),
    ),
    "an integer arm takes the type of the bfloat arm": (
        "METAL_FUNC void count(thread uint& n) { n += 1; }\n",
        "bfloat b = bfloat(t + 0.5f); int n = i; uint u = 2, v = 3; thread uint& chosen = n > 2 ? u : v;\n"
        "n > 4 ? count(u) : count(chosen); (n > 5 ? u : v) += 1;\n"
        "out[i] = float(n > 1?b:-1) + float(n > 1 ? n : b) + float(b > 1 ? b : u) + u * 10 + v * 100;",
        lambda t, i: (t + 0.5 if i > 1 else -1) + (i if i > 1 else t + 0.5) + (t + 0.5 if i > 0 else 2 + (i == 99))
        + 10 * (2 + (i > 2) + (i > 5)) + 100 * (3 + (i <= 2) + (i <= 5)),
    ),
    "limits of an own type": (
        "struct Ranked { uint i; float v; };\n"
        "template <> struct metal::_numeric_limits_impl<Ranked> {\n"
        "  static constexpr METAL_FUNC Ranked lowest() { return Ranked{7, numeric_limits<float>::lowest()}; } };\n",
        "out[i] = numeric_limits<Ranked>::lowest().i + vec_elements<half4>::value + vec_elements<float>::value\n"
        "  + __is_valid_simdgroup_type<float>::value + __is_valid_simdgroup_type<long>::value;",
        lambda t, i: 13.0,
    ),
    "names that Metal's library leaves free": (
        "namespace metal { template <typename T> struct is_empty : bool_constant<__is_empty(T)> {};\n"
        "template <typename... Ts> struct make_void { typedef void type; };\n"
        "template <typename... Ts> using void_t = typename make_void<Ts...>::type;\n"
        "METAL_FUNC bfloat exp2(bfloat v) { return bfloat(exp2(float(v))); } }\nstruct Nothing {};\n",
        "bfloat b = exp2(bfloat(2.0f)); out[i] = float(b) + is_empty<Nothing>::value;",
        lambda t, i: 5.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("check", ["off", "full"])
@pytest.mark.parametrize("name", CASES)
def test_constructs_of_public_kernels_mean_what_they_mean_in_metal(name: str, check: Literal["off", "full"]):
    declarations, body, expected = CASES[name]
    kernel = compile_shader(f"{HEADER}{declarations}{SIGNATURE} {{ float t = x[i]; {body} }}", check=check).k
    out = torch.zeros(8)
    kernel(out, torch.arange(8.0), threads=8, group_size=8)
    assert out.tolist() == [float(expected(float(i), i)) for i in range(8)]


def test_strict_mode_alone_refuses_functions_of_bfloat():
    text = HEADER + f"{SIGNATURE} {{\n bfloat b = bfloat(x[i]);\n out[i] = exp(b) + metal::fast::log2(b * 2 + 4);\n}}"
    with pytest.raises(ShaderCompileError, match=r"strict=False.*\[strict T2\]") as error:
        compile_shader(text)
    assert error.value.line == 5
    out = torch.zeros(2)
    compile_shader(text, strict=False).k(out, torch.tensor([0.0, 0.0]), threads=2)
    assert out.tolist() == [3.0, 3.0]


def test_bfloat_has_functions_vectors_and_lanes_where_strict_mode_does_not_refuse_them():
    body = (
        "bfloat b = max(bfloat(t), bfloat(2.0f)), c = clamp(b, bfloat(1.0f), bfloat(3.0f)); bfloat4 v = bfloat4(b);\n"
    )
    body += "bfloat4 w = max(abs(-v), fma(v, v, v)); out[i] = float(c) + float(w.z) + float(simd_max(bfloat(t)));"
    out = torch.zeros(4)
    compile_shader(HEADER + f"{SIGNATURE} {{ float t = x[i];\n{body} }}", strict=False).k(
        out, torch.arange(4.0), threads=4
    )
    assert out.tolist() == [2 + 6 + 3, 2 + 6 + 3, 2 + 6 + 3, 3 + 12 + 3]


def test_an_assertion_that_does_not_hold_is_reported():
    text = HEADER + f"{SIGNATURE} {{\n assert(i < 3);\n out[i] = 1.0f;\n}}"
    with pytest.raises(CheckError, match=r"assert\(i < 3\) does not hold in thread 3") as error:
        compile_shader(text).k(torch.zeros(4), torch.zeros(4), threads=4, group_size=4)
    assert [(report.kind, report.line) for report in error.value.reports] == [("assertion", 4)]
    compile_shader(text, defines=["NDEBUG"]).k(torch.zeros(4), torch.zeros(4), threads=4, group_size=4)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("constexpr sampler nearest(coord::normalized);", "sampler"),
        ("typedef texture2d<float, access::read> image;", "texture2d"),
        ("using table = visible_function_table<float(float)>;", "visible_function_table"),
        ("using hits = raytracing::intersector<>;", "raytracing"),
        ("using t = tensor<device half, dextents<int, 2>>;", "tensor"),
        ("[[visible]] float f(float v) { return v; }", "visible"),
        ("constant float a[2] = { [0 ... 1] = 2.0f };", "designated"),
    ],
)
def test_what_cannot_be_simulated_is_named_with_its_line(line: str, word: str):
    with pytest.raises(ShaderCompileError, match=word) as error:
        compile_shader(f"{HEADER}{line}\n{SIGNATURE} {{ out[i] = x[i]; }}")
    assert error.value.line == 3


def test_ordinary_names_are_not_taken_for_resources():
    text = HEADER + "struct View { int tensor; float sampler; };\n"
    text += (
        f"{SIGNATURE} {{ View v; v.tensor = 2; v.sampler = x[i]; int tensor = v.tensor; out[i] = tensor * v.sampler; }}"
    )
    out = torch.zeros(2)
    compile_shader(text).k(out, torch.tensor([1.0, 2.0]), threads=2)
    assert out.tolist() == [2.0, 4.0]


def test_an_error_in_a_header_names_it_and_the_line_that_includes_it(tmp_path):
    (tmp_path / "part.h").write_text("inline float half_of(float v) {\n  return w / 2;\n}\n")
    with pytest.raises(ShaderCompileError, match=r"part\.h:2: ") as error:
        compile_shader(f'{HEADER}#include "part.h"\n{SIGNATURE} {{ out[i] = x[i]; }}', include_dirs=[str(tmp_path)])
    assert error.value.line == 3


@pytest.mark.parametrize("check", ["off", "full"])
def test_vectors_at_the_alignment_of_their_elements_are_accessed(check: Literal["off", "full"]):
    # As matrix products of public projects store rows of any length.
    text = HEADER + f"{SIGNATURE} {{ *(device float4*)(out + 5 * i) = *(device const float4*)(x + 5 * i) * 2; }}"
    x, out = torch.arange(10.0), torch.zeros(10)
    compile_shader(text, check=check).k(out, x, threads=2, group_size=2)
    assert out.tolist() == [2.0 * i if i % 5 < 4 else 0.0 for i in range(10)]


def test_a_text_of_many_kernels_is_compiled_kernel_by_kernel():
    text = HEADER + "template <int n> kernel void add(device float* out) { out[0] += Missing<n>::value; }\n"
    text = text.replace("template", "template <int n> struct Missing;\ntemplate <> struct Missing<3> "
                        "{ static constexpr constant float value = 3; };\ntemplate", 1)  # fmt: skip
    text += "".join(f'template [[host_name("add_{n}")]] kernel void add<{n}>(device float*);\n' for n in range(70))
    library, out = compile_shader(text), torch.zeros(1)
    assert len(library) == 70
    library.add_3(out, threads=1)
    assert out.item() == 3.0
    with pytest.raises(ShaderCompileError) as error:
        _ = library.add_4
    assert error.value.line == 5


def test_a_part_has_the_code_of_its_kernel_alone():
    # Else each part would take as long to compile as the whole text. Threadgroup memory is what names a kernel.
    text = HEADER + "".join(
        f"kernel void k{n}(device float* out) {{ threadgroup float t[{n + 1}]; t[0] = {n}; out[0] = t[0]; }}\n"
        for n in range(70)
    )
    library, out = compile_shader(text), torch.zeros(1)
    library.k7(out, threads=1)
    assert out.item() == 7.0
    assert library.k7.static_thread_group_memory_length == 32
    part = library.k7._module.library.read_bytes()
    assert b"\0_Z2k7Pf\0" in part
    assert b"\0_Z2k8Pf\0" not in part


def test_kernels_may_have_the_names_of_library_functions():
    text = (
        HEADER
        + """
kernel void transpose(device float* o) { threadgroup float t[4]; t[0] = 1; o[0] = t[0]; }
namespace a::b { kernel void max(device float* o) { threadgroup float t[8]; t[0] = 2; o[0] = t[0]; } }
namespace a { template <typename T> kernel void min(device T* o) { threadgroup T t[12]; t[0] = 3; o[0] = t[0]; }
template [[host_name("smallest")]] kernel void min<float>(device float*); }
namespace { kernel void exp(device float* o) { threadgroup float t[16]; t[0] = 4; o[0] = t[0]; } }
extern "C" { kernel void sin(device float* o) { o[0] = 5; } }
"""
    )
    library = compile_shader(text, strict=False)
    for number, name in enumerate(("transpose", "max", "smallest", "exp", "sin"), 1):
        out = torch.zeros(1)
        library[name](out, threads=1)
        assert out.item() == number
        assert library[name].static_thread_group_memory_length == (16 * number if number < 5 else 0)


@pytest.mark.parametrize("check", ["off", "full"])
def test_attributes_in_the_spelling_of_gnu(check: Literal["off", "full"]):
    """`__attribute__` may stand behind a function's parameters, where [[...]] may not, and behind an array."""
    text = f"""{HEADER}#define SIDE 4
inline float twice(float v) __attribute__((always_inline)) {{ return v * 2.0f; }}
kernel void k(device float* out, uint i [[thread_position_in_grid]])
    __attribute__((max_total_threads_per_threadgroup(SIDE * 2u)))
{{
  threadgroup float shared[8] __attribute__((aligned(16)));
  shared[i] = twice(float(i));
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[7 - i];
}}
"""
    kernel = compile_shader(text, check=check).k
    assert kernel.max_threads_per_threadgroup == 8
    assert kernel.static_thread_group_memory_length == 32
    out = torch.empty(8)
    kernel(out, threads=8, group_size=8)
    assert out.tolist() == [14 - 2 * i for i in range(8)]

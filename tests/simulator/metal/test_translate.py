"""The translator, piece by piece: Metal text in, C++ text out. No compiler is run here."""

from __future__ import annotations

import re

import pytest

from inductor_mps_attention.simulator.metal.translate import Translation, translate
from inductor_mps_attention.simulator.nvidia.target import CUDA, unroll_pragmas

KERNEL = "kernel void k(device float* out) {}"


def code(source: str, **constants: bool | int | float) -> str:
    """The C++ text of `source` followed by a kernel, on one line, without the kernel."""
    translated = translate(f"{source}\n{KERNEL}", constants or None).code
    return " ".join(translated.split("inline void k(")[0].split())


def body(source: str) -> str:
    """The C++ text of statements in a kernel."""
    translated = translate(f"kernel void k(device float* out) {{ {source} }}").code
    return " ".join(translated.split(" void k(")[1].split("{", 1)[1].split("MSL_ENTRY_")[0].split())[:-2]


def only_entry(source: str):
    (entry,) = translate(source).entries
    return entry


@pytest.mark.parametrize(
    ("metal", "cpp"),
    [
        ("x = 1.0;", "x = 1.0f;"),
        ("x = 1e-5;", "x = 1e-5f;"),
        ("x = 1.;", "x = 1.f;"),
        ("x = .5h;", "x = half(.5f);"),
        ("x = 1h;", "x = half(1.0f);"),
        ("x = 2.0bf;", "x = bfloat(2.0f);"),
        ("x = 3 + 0x1Fu + 7ul;", "x = 3 + 0x1Fu + 7ul;"),
        ("x = 0xE - 0xBF;", "x = 0xE - 0xBF;"),
        ("x = 1.5f;", "x = 1.5f;"),
    ],
)
def test_literals_have_metal_types(metal: str, cpp: str):
    assert body(metal) == cpp


@pytest.mark.parametrize(
    ("metal", "cpp"),
    [
        ("x = v.xy;", "x = v.template swz<0,1>();"),
        ("x = v.bgra.x;", "x = v.template swz<2,1,0,3>().x;"),
        ("v.yz = x;", "v.template lswz<1,2>() = x;"),
        ("v.xy += x;", "v.template lswz<0,1>() += x;"),
        ("if (v.xy == w) {}", "if (v.template swz<0,1>() == w) {}"),
        ("x = p->zw;", "x = p->template swz<2,3>();"),
        ("x = v.x;", "x = v.x;"),
        ("x = v.xyz();", "x = v.xyz();"),
        ("float xy = 1.0; x = xy;", "float xy = 1.0f; x = xy;"),
    ],
)
def test_swizzles_read_and_write(metal: str, cpp: str):
    assert body(metal) == cpp


def test_a_member_that_looks_like_a_swizzle_is_a_member():
    text = code("struct S { float ab, x; int ba[2]; }; float f(S s) { return s.ab + s.ba[0]; }")
    assert "s.ab + s.ba[0]" in text


@pytest.mark.parametrize(
    ("metal", "cpp"),
    [
        ("constant int N = 4;", "const int N = 4;"),
        ("constant constexpr int N = 4;", "constexpr int N = 4;"),
        ("static constant float t[2] = {1.0, 2.0};", "static const float t[2] = {1.0f, 2.0f};"),
        ("float f(constant float* p, const constant int& n);", "float f(const float* p, const int& n);"),
        (
            "float f(device const float4* p, threadgroup half* t, thread int& n);",
            "float f( const float4* p, half* t, int& n);",
        ),
        ("struct A { int g() const thread { return 1; } };", "struct A { int g() const { return 1; } };"),
    ],
)
def test_address_spaces_vanish_and_constant_stays_const(metal: str, cpp: str):
    assert re.sub(r"\s", "", code(metal)) == re.sub(r"\s", "", cpp)


def test_overloads_that_differ_in_address_space_only_are_one():
    text = code("float f(device float* p) { return *p; } float f(threadgroup float* p) { return *p; }")
    assert text.count("float f(") == 1


def test_overloads_of_constant_and_device_are_two():
    assert code("float f(device float* p) { return 1; } float f(constant float* p) { return 2; }").count("f(") == 2


def test_the_same_declaration_in_two_namespaces_stays_twice():
    text = code("namespace a { float f(device int* p); } namespace b { float f(device int* p); }")
    assert text.count("float f(") == 2


def test_conversion_operators_of_two_address_spaces_are_one():
    text = code(
        "struct S { float x; operator float() const device { return x; } operator float() const thread { return x; } };"
    )
    assert text.count("operator float") == 1


def test_threadgroup_variables_become_references_into_the_arena():
    text = body("threadgroup float a[8][N + 1], b; threadgroup half* p = x;")
    assert "using msl_threadgroup_1 = float [ 8 ] [ N + 1 ];" in text
    assert 'msl_threadgroup_1& a = ::msl_::tg<msl_threadgroup_1, 1>("a", __LINE__);' in text
    assert "using msl_threadgroup_2 = float ; msl_threadgroup_2& b" in text
    assert text.endswith("half* p = x;")


def test_alignas_before_a_threadgroup_variable_goes():
    assert body("alignas(16) threadgroup float a[8];").startswith("using msl_threadgroup_1 = float [ 8 ];")


def test_an_initialised_threadgroup_variable_is_filled_once():
    assert "first_use<1>()" in body("threadgroup atomic_uint a[4] = {0};")


def test_lines_stay_where_they_are():
    source = "constant bool a [[function_constant(0)]];\n\nkernel void k(\n  device float* out [[buffer(0)]],\n"
    source += "  uint i [[thread_position_in_grid]]) {\n  threadgroup float\n  t[4];\n  marker();\n}\n"
    translated = translate(f'# 1 "kernel.metal"\n{source}').code
    lines = translated.split('# 1 "kernel.metal"\n')[1].split("\n")
    assert [number for number, line in enumerate(lines, 1) if "marker" in line] == [8]


def test_function_constants_take_values_by_index_and_name():
    source = "constant int n [[function_constant(2)]]; constant bool f [[function_constant(3)]];"
    assert "static constexpr int n = (int)(7);" in code(source, n=7)
    by_index = translate(f"{source}\n{KERNEL}", {3: True}).code
    assert "static constexpr bool f = (bool)(true); static constexpr bool msl_constant_given_f = true;" in by_index
    assert "msl_constant_given_n = false" in by_index


def test_asking_whether_a_function_constant_is_defined():
    text = code("constant int n [[function_constant(2)]]; int f() { return is_function_constant_defined(n); }", n=1)
    assert "return (msl_constant_given_n);" in text


@pytest.mark.parametrize(
    "instantiation",
    [
        'template [[host_name("add_float")]] [[kernel]] decltype(add<float, 4>) add<float, 4>;',
        'template [[host_name("add" "_float")]] kernel void add<float, 4>(device float*, uint);',
        'template [[host_name("add_float")]] kernel void ::add<float, 4>(device float* x [[buffer(0)]],'
        " uint i [[thread_position_in_grid]]);",
        'typedef decltype(add<float, 4>) add_t; template [[host_name("add_float")]] kernel add_t add<float, 4>;',
    ],
)
def test_template_kernels_have_host_names(instantiation: str):
    source = "template <typename T, int N> [[kernel]] void add(device T* x, uint i [[thread_position_in_grid]]) {}"
    translated = translate(f"{source}\n{instantiation}")
    (entry,) = translated.entries
    assert (entry.name, entry.function) == ("add_float", "add")
    assert re.search(r"::call\(&(:: ?)?add < float , 4 >, arguments", translated.code)


def test_an_instantiation_without_host_name_is_called_what_it_is():
    source = "template <int N> kernel void add(device int* x) {} template kernel void add<4>(device int*);"
    assert only_entry(source).name == "add<4>"


def test_entries_stand_in_the_namespace_of_their_kernel():
    translated = translate("namespace n { struct S { int x; }; kernel void k(device S* s) {} }").code
    assert translated.rstrip().endswith("}) }")


def test_parameters_are_bound_in_order_around_explicit_indices():
    entry = only_entry(
        "kernel void k(device int* a, constant int& b [[buffer(1)]], device const int* c,"
        " uint i [[thread_index_in_simdgroup]]) {}"
    )
    assert [(p.kind, p.index, p.writable) for p in entry.parameters] == [
        ("A_BUF", 0, True),
        ("A_BUF", 1, False),
        ("A_BUF", 2, False),
        ("A_LANE", 0, False),
    ]


def test_thread_limits_are_read():
    source = "[[max_total_threads_per_threadgroup(256)]] kernel void k(device int* a) {}"
    assert only_entry(source).max_threads == 256


def independent(source: str) -> frozenset[str]:
    translation: Translation = translate(source)
    return translation.independent


def test_a_kernel_that_meets_nobody_needs_no_fibers():
    assert independent("float g(float x) { return x; } kernel void k(device float* a) { a[0] = g(1); }") == {"k"}


CALL = "kernel void k(device float* a) { a[0] = %s; }"


@pytest.mark.parametrize(
    "source",
    [
        "kernel void k(device float* a) { threadgroup_barrier(mem_flags::mem_device); }",
        "kernel void k(device float* a) { threadgroup float t[4]; }",
        "kernel void k(device float* a, threadgroup float* t [[threadgroup(0)]]) {}",
        CALL % "simd_sum(a[1])",
        "float g(float x) { return simd_shuffle_xor(x, 1); } float h(float x) { return g(x); }" + CALL % "h(1)",
        "struct F { float operator()(float x) { return quad_sum(x); } };" + CALL % "F()(1)",
        "struct F { float operator()(float x) { return simd_max(x); } };"
        " template <typename G> kernel void k(device float* a) { a[0] = G()(1); }"
        ' template [[host_name("k")]] kernel void k<F>(device float*);',
    ],
)
def test_a_kernel_that_reaches_a_collective_has_fibers(source: str):
    assert independent(source) == frozenset()


def test_pragmas_vanish_or_stay_with_their_lines():
    source = "kernel void k(device int* o) {\n#pragma clang loop unroll(full)\nfor (int i = 0; i < 3; i++) o[i] = i; }"
    kept = translate(source, target=CUDA).code.split("\n")
    assert kept[1] == "#pragma clang loop unroll(full)"
    assert unroll_pragmas("\n".join(kept)).split("\n")[1] == "#pragma unroll"
    assert "pragma" not in translate(source).code

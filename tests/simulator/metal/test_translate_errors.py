"""What the translator does not understand is an error that names it with its line; nothing is passed on."""

from __future__ import annotations

import pytest

from inductor_mps_attention.simulator.metal.errors import ShaderCompileError
from inductor_mps_attention.simulator.metal.translate import translate

KERNEL = "kernel void k(device float* a) {}"
STATEMENT = "kernel void k(device float* a) {\n %s }"
PARAMETER = "kernel void k(device float* a,\n %s) {}"

# name: (Metal text, its faulty line, what the message names)
BAD = {
    "unknown attribute": (PARAMETER % "uint i [[thread_position_in_universe]]", 2, "thread_position_in_universe"),
    "texture attribute": (PARAMETER % "uint t [[texture(0)]]", 2, r"texture \( 0 \)"),
    "vertex function": (f"{KERNEL}\nvertex float4 v() {{ return 0; }}", 2, "vertex"),
    "inline assembly": (STATEMENT % 'asm("nop");', 2, "asm"),
    "double": (STATEMENT % "double x = 1;", 2, "double"),
    "long double literal": (STATEMENT % "a[0] = 1.0L;", 2, "1.0L"),
    "scalar by value": (PARAMETER % "int n", 2, "int n"),
    "pointer without an address space": (PARAMETER % "float* n [[buffer(1)]]", 2, r"float\* n"),
    "signed position": (PARAMETER % "int i [[thread_position_in_grid]]", 2, "uint or ushort"),
    "buffer index out of range": ("kernel void k(device float* a [[buffer(31)]]) {}", 1, "31"),
    "two buffers of one index": (
        "kernel void k(device float* a [[buffer(1)]], device int* b [[buffer(1)]]) {}",
        1,
        "twice",
    ),
    "threadgroup index out of range": (PARAMETER % "threadgroup int* t [[threadgroup(8)]]", 2, "0 to 7"),
    "index that is no constant": ("kernel void k(device float* a [[buffer(N)]]) {}", 1, "integer constant"),
    "kernel with a result": ("kernel float k(device float* a) {}", 1, "void"),
    "overloaded kernel": (f"{KERNEL}\nkernel void k(device int* a) {{}}", 2, "twice"),
    "threadgroup variable in a function": (f"void f() {{\n threadgroup float x[4]; }}\n{KERNEL}", 2, "outside"),
    "global threadgroup variable": (f"int y;\nthreadgroup float x[4];\n{KERNEL}", 2, "outside"),
    "threadgroup variable in a class": (f"struct S {{\n threadgroup float x[4]; }};\n{KERNEL}", 2, "outside"),
    "more threads than a threadgroup has": (f"[[max_total_threads_per_threadgroup(2048)]] {KERNEL}", 1, "2048"),
    "instantiation of nothing": (
        f'{KERNEL}\ntemplate [[host_name("x")]] kernel void g<int>(device int*);',
        2,
        "no kernel",
    ),
    "two kernels of one name": (
        f'{KERNEL}\n[[host_name("k")]] kernel void g(device int* a) {{}}',
        2,
        "name 'k'",
    ),
    "no kernel": ("int f() { return 1; }", 0, "no kernel"),
    "undeclared function constant": (STATEMENT % "is_function_constant_defined(n);", 2, "no such"),
    "unclosed bracket": ("kernel void k(device int* a) {\n (", 2, "never closed"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_understood_is_named(name: str):
    source, line, message = BAD[name]
    with pytest.raises(ShaderCompileError, match=message) as caught:
        translate(source)
    assert caught.value.line == line

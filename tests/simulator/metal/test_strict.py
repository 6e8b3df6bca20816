"""Strict rules: each has a text that trips it, at the right line, and a text of the same look that must not."""

from __future__ import annotations

import pytest

from inductor_mps_attention.simulator import settings
from inductor_mps_attention.simulator.metal import ShaderCompileError, compile_shader
from inductor_mps_attention.simulator.metal.preprocess import preprocess, torch_include_directories
from inductor_mps_attention.simulator.metal.source import Source
from inductor_mps_attention.simulator.metal.strict import violations
from inductor_mps_attention.simulator.metal.toolchain import NATIVE

KERNEL = "kernel void k(device int* a) {\n %s\n}"

TRIPS = {
    "L1 lambda": ("auto f = [](int x) { return x; };", "L1"),
    "L1 lambda with a capture": ("a[0] = [=]() { return 1; }();", "L1"),
    "L1 lambda as an argument": ("apply([&](int x) { return x; });", "L1"),
    "L3 goto": ("goto end;", "L3"),
    "L3 allocation": ("a[0] = *new int(3);", "L3"),
    "L3 standard library": ("a[0] = std::max(1, 2);", "L3"),
    "L3 virtual": ("struct S { virtual int f(); };", "L3"),
    "L4 long long": ("long long x = 1;", "L4"),
    "L4 unsigned long long": ("unsigned long long x = 1;", "L4"),
    "L10 private name": ("a[0] = __metal_exp(1.0f);", "L10"),
}

PASSES = {
    "subscripts": "int b[4]; b[0] = a[b[1]]; (b)[2] = 1; a[a[0]] = b[a[1]];",
    "an array in an array": "int b[2][2] = {{1, 2}, {3, 4}}; b[0][1] = 2;",
    "attributes": "[[maybe_unused]] int x = 1; switch (x) { case 1: x = 2; [[fallthrough]]; default: break; }",
    "array references": "thread int (&r)[4] = *(thread int (*)[4])a;",
    "words inside names": "int goto_end = 1, renew = 2, newer = 3; long unsigned_long = 4;",
    "words in comments and strings": '// goto new std::max\n constant char* s = "new [](){}";',
    "unsigned long": "unsigned long x = 1; ulong y = 2;",
}


@pytest.mark.parametrize("name", TRIPS)
def test_a_rule_is_tripped_at_its_line(name: str):
    statement, rule = TRIPS[name]
    found = violations(Source(KERNEL % statement))
    assert [(violation.rule, violation.line) for violation in found] == [(rule, 2)]


@pytest.mark.parametrize("name", PASSES)
def test_what_looks_alike_is_left_alone(name: str):
    assert violations(Source(KERNEL % PASSES[name])) == []


def test_strict_is_on_unless_it_is_switched_off():
    source = KERNEL % "auto f = [](int x) { return x + 1; };\n a[0] = f(1);"
    with pytest.raises(ShaderCompileError, match=r"lambdas .*\[strict L1\]") as caught:
        compile_shader(source)
    assert caught.value.line == 2
    compile_shader(source, strict=False)


def test_torchs_own_headers_break_no_rule():
    (include,) = torch_include_directories()
    names = ("utils", "special_math", "reduction_utils", "random", "atomic", "error", "indexing", "igamma", "expm1f")
    source = "".join(f"#include <c10/metal/{name}.h>\n" for name in names)
    text = preprocess(source, settings.compiler(), NATIVE / "stubs", [include])
    assert violations(Source(text)) == []

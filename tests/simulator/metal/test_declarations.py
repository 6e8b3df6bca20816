"""Where declarations start and end: a wrong end swallows the next declaration, and a kernel or a member is lost."""

from __future__ import annotations

import pytest

from inductor_mps_attention.simulator.metal.source import Source
from inductor_mps_attention.simulator.metal.translate_declarations import read_declarations

LAST = " void last() {}"

CASES = {
    "variable": ("int x = f(1, 2);", [("other", "x")]),
    "array": ("constant float t[2][2] = {{1, 2}, {3, 4}};", [("other", "t")]),
    "prototype": ("float f(device float* p, int n);", [("other", "f")]),
    "function": ("inline float f(float x) { if (x) { return 1; } return 2; }", [("function", "f")]),
    "alias": ("using row = vec<float, 4>;", [("other", "row")]),
    "result type with template arguments": ("metal::vec<float, (4 > 3)> f(int x) { return x; }", [("function", "f")]),
    "template": ("template <typename T, int N = (1 < 2)> T f(T x) { return x; }", [("function", "f")]),
    "nested template brackets": ("template <typename T> vec<vec<T, 2>, 3> f(T x) { return x; }", [("function", "f")]),
    "explicit specialisation": ("template <> float f<float>(float x) { return x; }", [("function", "f")]),
    "enable_if result": (
        "template <typename T> enable_if_t<is_same_v<T, float> && sizeof(T) <= 4, T> f(T x) { return x; }",
        [("function", "f")],
    ),
    "class": ("struct S { int x; };", [("class", "S")]),
    "class and variable": ("struct alignas(16) S { int x; } s;", [("class", "S")]),
    "derived class": ("struct S : Base<int> { int x; };", [("class", "S")]),
    "enumeration": ("enum class E : uint { a = 1, b };", [("other", "E")]),
    "operator": ("S operator+(S a, S b) { return a; }", [("function", "operator")]),
    "assignment operator": ("S& assign(S& a); S operator==(S a, S b) { return a; }", None),
    "call operator": ("struct S { int operator()(int x) { return x; } int y; };", [("class", "S")]),
    "brace-initialised variable": ("constant Pair p{1, 2};", [("other", "p")]),
    "static_assert": ('static_assert(sizeof(int) == 4, "size");', None),
    "lambda in an initialiser": ("constant auto f = [](int x) { return x; };", [("other", "f")]),
    "namespace": ("namespace a::b { int f() { return 1; } int x; }", [("namespace", "")]),
    "linkage": ('extern "C" { int f(); }', [("namespace", "")]),
    "result type behind": ("auto f(int x) -> float { return x; }", [("function", "f")]),
    "instantiation": ("template float f<float>(float);", [("instantiation", "")]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_declaration_behind_is_found(name: str):
    source, expected = CASES[name]
    found = [(declaration.kind, declaration.name) for declaration in read_declarations(Source(source + LAST))]
    assert found[-1] == ("function", "last")
    if expected is not None:
        assert found[:-1] == expected


def members(source: str) -> list[tuple[str, str]]:
    (declaration,) = read_declarations(Source(source))
    return [(member.kind, member.name) for member in declaration.members]


def test_members_of_a_class_are_told_apart():
    text = """struct S {
      static constant constexpr int n = 4;
      float x, y;
      S() thread = default;
      S(float a) : x{a}, y(a) {}
      template <typename T> explicit S(T a) : x(a), y{a} { x = 1; }
    public:
      thread S& operator=(const thread S& o) thread { x = o.x; return *this; }
      bool operator<(S o) const { return x < o.x; }
      float operator[](int i) const { return i ? x : y; }
      operator float() const thread { return x; }
      struct Inner { int z; } inner;
      union { float u; uint v; };
      int last() { return 1; }
    };"""
    assert members(text) == [
        ("other", "n"),
        ("other", "y"),
        ("other", "S"),
        ("function", "S"),
        ("function", "S"),
        ("function", "operator"),
        ("function", "operator"),
        ("function", "operator"),
        ("function", "float"),
        ("class", "Inner"),
        ("class", ""),
        ("function", "last"),
    ]

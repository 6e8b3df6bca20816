"""For each rule of strict mode: texts that trip it, and near misses that must not. `HERE` marks the reported line."""

from __future__ import annotations

HEADER = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n"
SIGNATURE = (
    "[[max_total_threads_per_threadgroup(64)]]\n"
    "kernel void k(device float* a [[buffer(0)]], constant float& s [[buffer(1)]])"
)


def body(statements: str, before: str = "") -> str:
    """A kernel with these statements, behind these declarations."""
    return f"{HEADER}{before}\n{SIGNATURE} {{\n{statements}\n}}\n"


def signature(parameters: str, *, returns: str = "void", threads: str = "64", before: str = "") -> str:
    """An empty kernel with these parameters."""
    stated = f"[[max_total_threads_per_threadgroup({threads})]]" if threads else ""
    ending = "return 1;" if returns != "void" else ""
    return f"{HEADER}{before}\n{stated}\nkernel {returns} k({parameters}) {{ {ending} }} // HERE\n"


DEVICE = "device float* a [[buffer(0)]]"
TEMPLATE = (
    "template <typename T>\n[[max_total_threads_per_threadgroup(64)]]\nkernel void f(device T* a [[buffer(0)]]) {}\n"
)
NESTED = "(" * 205 + "1" + ")" * 205

# rule: [(text that trips it, near miss)]
PAIRS: dict[str, list[tuple[str, str]]] = {
    "V4": [(body("a[0] = 1.0f; // 1 \u00d7 1 HERE"), body("a[0] = 1.0f; // 1 x 1 HERE"))],
    "L1": [(body("auto f = [](int x) { return x; }; // HERE"), body("int f[2] = {1, 2}; a[f[0]] = 1.0f;"))],
    "L3": [
        (body("a[0] = *new float(1.0f); // HERE"), body("float newer = 1.0f; a[0] = newer;")),
        (
            body("a[0] = f(3);", "inline float f(int n) { return n == 0 ? 0.0f : f(n - 1); } // HERE"),
            body(
                "a[0] = f(3);", "inline float g(int n) { return float(n); }\ninline float f(int n) { return g(n - 1); }"
            ),
        ),
        (
            body(
                "a[0] = f(3);",
                "float f(int n);\nfloat g(int n) { return f(n); } // HERE\nfloat f(int n) { return g(n); }",
            ),
            body(
                "a[0] = f(3, 2);",
                "inline float f(int n) { return float(n); }\ninline float f(int n, int m) { return f(n * m); }",
            ),
        ),
    ],
    "L4": [
        (body("long long x = 1; // HERE"), body("long x = 1; unsigned long y = 2;")),
        (body("double x = 1.0f; // HERE"), body("float doubled = 1.0f; a[0] = doubled; // a double")),
    ],
    "L5": [
        (body("int n = int(s);\nfloat x[n]; // HERE"), body("constexpr int n = 4;\nfloat x[n];")),
        (body("const int n = int(s);\nfloat x[n]; // HERE"), body("float x[N * 2];", "constant constexpr int N = 4;")),
    ],
    "L6": [
        (body("", "constexpr int N = 4; // HERE"), body("", "constant constexpr int N = 4;")),
        (body("", "static float x; // HERE"), body("", "static constant constexpr float x = 1.0f;")),
    ],
    "L7": [(body("static int x = 1; // HERE"), body('static_assert(sizeof(float) == 4, ""); constexpr int x = 1;'))],
    "L8": [(body("", "union U { float f; uint u; }; // HERE"), body("", "struct U { float f; uint u; };"))],
    "L9": [
        (body("float quad = 1.0f; // HERE"), body("float quads = 1.0f;")),
        (body("float fragment[2]; // HERE"), body("float fragments[2];")),
        (body("", "typedef half bfloat16; // HERE"), body("", "typedef half bfloat_16;")),
        (
            body("float M_PI_F = 3.0f; // HERE"),
            body("float pi = M_PI_F; const half h = half(pi); unsigned int u = 1u;"),
        ),
        (body("", "#define INFINITY 1.0f // HERE"), body("", "#define UNSEEN INFINITY")),
    ],
    "L10": [
        (body("a[0] = __metal_exp(1.0f); // HERE"), body("a[0] = metal::exp(1.0f);")),
        (body('asm("nop"); // HERE'), body("int asmlike = 1;")),
    ],
    "L11": [(body(f"int x = {NESTED}; // HERE"), body(f"int x = {NESTED[10:-10]};"))],
    "L13": [
        (body("#pragma omp parallel // HERE"), body("#pragma clang loop unroll(full)\nfor (int i = 0; i < 2; i++) {}")),
    ],
    "L14": [
        (
            signature("device const float* restrict a [[buffer(0)]]"),
            signature("device const float* __restrict a [[buffer(0)]], device float* __restrict__ b [[buffer(1)]]"),
        ),
        (
            body("", "inline void f(device float* restrict x) {} // HERE"),
            body("", "inline void f(device float* __restrict x) {}"),
        ),
    ],
    "L15": [
        (body("uint half = 4; // HERE"), body("uint halves = 4; half x = half(halves);")),
        (
            body("", "inline uint f(uint half, uint n) { return n; } // HERE"),
            body("", "inline uint f(half, uint n) { return n; }"),
        ),
    ],
    "A1": [
        (body("float* p = a; // HERE"), body("device float* p = a; int n = 2; n = n * n;")),
        (
            body("", "inline void f(float& x) { x = 1.0f; } // HERE"),
            body("", "inline void f(thread float& x) { x = 1.0f; }"),
        ),
        (body("", "inline void f(float (&x)[4]) {} // HERE"), body("", "inline void f(thread float (&x)[4]) {}")),
        (body("a[0] = *(float*)a; // HERE"), body("a[0] = float(*(device float*)a) * 2.0f;")),
        (
            body("", "template <typename T> void f(const T* x) {} // HERE"),
            body("", "template <typename T> void f(const device T* x) {}"),
        ),
    ],
    "A2": [
        (body("threadgroup float* p = a; // HERE"), body("device float* p = a;")),
        (body("thread float* p = (thread float*)a; // HERE"), body("device uint* p = (device uint*)a;")),
        (
            body("f(a); // HERE", "inline void f(threadgroup float* p) {}"),
            body("f(a);", "inline void f(threadgroup float* p) {}\ninline void f(device float* p) {}"),
        ),
        (
            body(
                "simdgroup_float8x8 m;\nf(m, a); // HERE",
                "inline void f(thread simdgroup_float8x8& m, threadgroup float* p) {\n  simdgroup_load(m, p, 8);\n}",
            ),
            body(
                "simdgroup_float8x8 m;\nf(m, a);",
                "inline void f(thread simdgroup_float8x8& m, device float* p) {\n  simdgroup_load(m, p, 8);\n}",
            ),
        ),
    ],
    "A3": [
        (
            body("", "struct S { float x;\n  float get() const { return x; } // HERE\n};"),
            body(
                "",
                "struct S { float x;\n  float get() const thread { return x; }\n"
                "  static float one() { return 1.0f; }\n};",
            ),
        ),
        (
            body("", "inline void g(thread float& x) { x = 1.0f; }\ninline void f(float& x) {\n  g(x); // HERE\n}"),
            body("", "inline void g(thread float& x) { x = 1.0f; }\ninline void f(thread float& x) {\n  g(x);\n}"),
        ),
    ],
    "A4": [(body("decltype(s) x = s; // HERE"), body("float x = s; a[0] = x; // decltype(s)"))],
    "A5": [
        (
            body("f(s); // HERE", "inline float f(const thread float& x) { return x; }"),
            body("f(s);", "inline float f(float x) { return x; }"),
        ),
        (
            body("thread const float* p = &s; // HERE"),
            body("constant float* p = &s;\nP q = *(constant P*)p;", "struct P { float x; };"),
        ),
    ],
    "A6": [
        (
            body("", "inline void f() {\n  threadgroup float x[4]; // HERE\n}"),
            body("threadgroup float x[4];\nx[0] = 1.0f;"),
        ),
    ],
    "A7": [
        (body("threadgroup float4x4 x[4]; // HERE"), body("threadgroup float4 x[16];")),
        (
            body("threadgroup S x[4]; // HERE", "struct S { float4x4 m; };"),
            body("threadgroup S x[4];", "struct S { float m[16]; };"),
        ),
    ],
    "A8": [
        (
            body("threadgroup float x[4] = {0}; // HERE"),
            body("threadgroup float x[4];\nfloat y[4] = {0};\nx[0] = y[0];"),
        )
    ],
    "A9": [
        (
            body("", "inline void f(threadgroup float& x) {} // HERE"),
            body("", "inline void f(threadgroup float* x) {}"),
        ),
    ],
    "A10": [
        (signature(f"{DEVICE}, threadgroup float* x [[threadgroup(0)]]"), body("threadgroup float x[4];")),
    ],
    "A11": [
        (
            body("", "inline void f(device float* device* x) {} // HERE"),
            body("", "inline float f(device float* x) { return 2.0f * *x; }"),
        ),
        (body("", "struct S {\n  thread float& x; // HERE\n};"), body("", "struct S {\n  device float* x;\n};")),
        (
            signature("constant S& s [[buffer(0)]]", before="struct S { device float* x; };"),
            signature("constant S& s [[buffer(0)]]", before="struct S { float x; };"),
        ),
    ],
    "K1": [
        (signature(f"{DEVICE}, int n"), signature(f"{DEVICE}, constant int& n [[buffer(1)]]")),
        (signature("thread float* a [[buffer(0)]]"), signature(DEVICE)),
    ],
    "K2": [
        (
            signature(f"{DEVICE}, int i [[thread_position_in_grid]]"),
            signature(f"{DEVICE}, uint i [[thread_position_in_grid]]"),
        ),
        (
            signature(f"{DEVICE}, uint3 i [[thread_position_in_grid]], uint2 g [[threadgroup_position_in_grid]]"),
            signature(f"{DEVICE}, uint3 i [[thread_position_in_grid]], uint l [[thread_index_in_simdgroup]]"),
        ),
    ],
    "K3": [
        (
            signature(f"{DEVICE}, uint w [[thread_execution_width]], uint v [[threads_per_simdgroup]]"),
            signature(f"{DEVICE}, uint v [[threads_per_simdgroup]]"),
        ),
    ],
    "K4": [
        (signature("device float* a [[buffer(31)]]"), signature("device float* a [[buffer(30)]]")),
        (signature(f"{DEVICE}, device float* b [[buffer(0)]]"), signature(f"{DEVICE}, device float* b [[buffer(1)]]")),
    ],
    "K5": [(signature(DEVICE, threads=""), signature(DEVICE))],
    "K6": [
        (signature(DEVICE, returns="int"), signature(DEVICE)),
        (
            signature(DEVICE).replace("HERE", "") + signature("device int* a [[buffer(0)]]").removeprefix(HEADER),
            signature(DEVICE) + signature("device int* a [[buffer(0)]]").removeprefix(HEADER).replace("k(", "k2("),
        ),
        (
            body("k2(a); // HERE", signature(DEVICE).removeprefix(HEADER).replace("k(", "k2(").replace("HERE", "")),
            body("f(a);", "inline void f(device float* a) {}"),
        ),
        (
            body(
                "",
                TEMPLATE + 'template [[host_name("f1")]] kernel void f<float>(device float*); // HERE',
            ),
            body(
                "",
                TEMPLATE + 'template [[host_name("f1")]] [[kernel]] decltype(f<float>) f<float>;',
            ),
        ),
    ],
    "K7": [
        (body("", "constant int n [[function_constant(0)]]; // HERE"), body("", "constant constexpr int n = 3;")),
    ],
    "K8": [
        (
            HEADER + f"kernel void k({DEVICE}) [[max_total_threads_per_threadgroup(64)]] {{}} // HERE\n",
            HEADER + f"[[kernel]] [[max_total_threads_per_threadgroup(64)]] void k({DEVICE}) {{}}\n",
        ),
        (
            HEADER + f"kernel [[max_total_threads_per_threadgroup(64)]] void k({DEVICE}) {{}} // HERE\n",
            body("if (s > 1.0f) { a[0] = s; }"),
        ),
    ],
    "T6": [
        (body("a[0] = 1.0; // HERE"), body("a[0] = 1.0f + float(1.0h) + 0x1p-3f + float(0xbf);")),
        (body("a[0] = float(1.0bf); // HERE"), body("a[0] = float(bfloat(1.0f));")),
    ],
    "T13": [
        (
            body("int n = (int(s) / 3) % 5; // HERE"),
            body("int n = int(s) / 3; n = n % 5 + (n + 1) % 3 + int(s / 2.0f) % 2;"),
        ),
        (body("int n = 7;\nn = n / 3 % 5; // HERE"), body("int n = 7;\nn = n % 5 / 3;")),
    ],
    "T16": [
        ("using namespace metal; // HERE\n" + SIGNATURE + " {}\n", body("")),
        ("#include <metal_stdlib> // HERE\n" + SIGNATURE + " {}\n", body("")),
        (
            "#include <metal_stdlib> // HERE\nusing namespace metal;\n"
            + SIGNATURE
            + " { simdgroup_matrix<float, 8, 8> m; }\n",
            "#include <metal_stdlib>\nusing namespace metal;\n" + SIGNATURE + " { int simdgroup_rows = 8; }\n",
        ),
    ],
    "M1": [
        (
            body("threadgroup float x[8192];\nthreadgroup float y[1];").replace(
                "kernel void k", "/* HERE */ kernel void k"
            ),
            body("threadgroup float x[4096];\nthreadgroup half y[8192];"),
        ),
    ],
    "M2": [(signature(DEVICE, threads="1025"), signature(DEVICE, threads="1024"))],
    "M5": [
        (
            body("atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device); // HERE"),
            body("threadgroup_barrier(mem_flags::mem_device);"),
        ),
        (body("auto order = memory_order_acquire; // HERE"), body("auto order = memory_order_relaxed;")),
    ],
    "M7": [
        (body("", "template <typename T> void f(tensor<T> x) {} // HERE"), body("", "struct tensor { float x; };")),
    ],
    "Surface": [
        (
            body("a[0] = max(1.0f, nextafter(1.0f, 2.0f)); // HERE"),
            body("a[0] = f(max(1.0f, 2.0f));", "METAL_FUNC float f(float x) { return x; }"),
        ),
        (body("a[0] = precise::cospi(1.0f); // HERE"), body("a[0] = precise::cos(1.0f);")),
        (body("simd_vote vote = simd_vote(1u).none(); // HERE"), body("simd_vote vote(1u); array<float, 2> x;")),
        (body("a[0] = metal::cospi(1.0f); // HERE"), body("a[0] = metal::sinpi(1.0f);")),
        (
            body("a[0] = nextafter(1.0f, 2.0f); // HERE"),
            body("a[0] = nextafter(1.0f);", "inline float nextafter(float x) { return x; }"),
        ),
        (
            body("a[0] = metal::precise::cbrt(1.0f); // HERE"),
            body("a[0] = metal::precise::exp2(float(half4(1.0h).x));"),
        ),
        (body("[[gnu::hot]] int x = 1; // HERE"), body("[[maybe_unused]] int x = 1;")),
        (body("", "#include <metal_pack> // HERE"), body("", "#include <metal_math>")),
    ],
}

# Rules of the shim: statements that must not compile, and near misses that must.
SHIM_PAIRS: dict[str, tuple[str, str]] = {
    "T1": ("bfloat x = s; a[0] = float(x);", "bfloat x = bfloat(s); a[0] = float(x);"),
    "T2": ("a[0] = float(exp(bfloat(s)));", "a[0] = exp(float(bfloat(s)));"),
    "T3": ("a[0] = float(simd_sum(bfloat(s)));", "a[0] = simd_sum(float(bfloat(s)));"),
    "T4": ("a[0] = simd_shuffle(s > 0.0f, 1) ? 1.0f : 0.0f;", "a[0] = simd_any(s > 0.0f) ? 1.0f : 0.0f;"),
    "T5": ("a[0] = max(s, half(s));", "a[0] = max(s, float(half(s)));"),
    "T7": ("a[0] = float(as_type<ushort>(s));", "a[0] = float(as_type<uint>(s));"),
    "T8": (
        "simdgroup_matrix<int, 8, 8> m; a[0] = m.thread_elements()[0];",
        "simdgroup_matrix<float, 8, 8> m(1.0f); a[0] = m.thread_elements()[0];",
    ),
    "T9": ("simdgroup_half8x8 m; simdgroup_load(m, a, 8);", "simdgroup_float8x8 m; simdgroup_load(m, a, 8);"),
    "T11": ("a[0] = float(simd_sum(long(s)));", "a[0] = float(simd_sum(int(s)));"),
    "T12": (
        "threadgroup atomic_float t; atomic_fetch_min_explicit(&t, s, memory_order_relaxed);",
        "threadgroup atomic_float t; atomic_fetch_add_explicit(&t, s, memory_order_relaxed);",
    ),
    "T15": (
        "half4 h = half4(1.0h); float4 f = h; a[0] = f.x;",
        "half4 h = half4(1.0h); float4 f = float4(h); a[0] = f.x;",
    ),
}

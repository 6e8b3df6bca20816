"""Kernels with one seeded fault each, as data: statements, kinds of report that the fault is, lines that may be named.

`//!` marks each line that is to blame; one of them must be in a report of one of the kinds. Knows nothing of the
checker.
"""

from __future__ import annotations

from dataclasses import dataclass

PROLOGUE = """#include <metal_stdlib>
using namespace metal;
kernel void k(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], constant float* c [[buffer(2)]],
              device atomic_uint* n [[buffer(3)]], uint i [[thread_index_in_threadgroup]],
              uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
              uint sg [[simdgroup_index_in_threadgroup]]) {
  const uint at = group * 128 + i;
"""
FIRST_LINE = PROLOGUE.count("\n") + 1
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
DEVICE_BARRIER = "threadgroup_barrier(mem_flags::mem_device);"
RELAXED = "memory_order_relaxed"
# An array that every thread fills before anybody reads it.
FILLED = f"threadgroup float t[128]; t[i] = x[i]; {BARRIER}\n"


@dataclass(frozen=True)
class Fault:
    """A kernel's statements and what a launch over `groups` threadgroups of 128 threads must report."""

    statements: str
    kinds: frozenset[str]
    groups: int = 1

    @property
    def source(self) -> str:
        return f"{PROLOGUE}{self.statements}\n}}\n"

    @property
    def lines(self) -> frozenset[int]:
        return frozenset(n for n, text in enumerate(self.statements.split("\n"), FIRST_LINE) if "//!" in text)


def _fault(kind: str, statements: str, groups: int = 1) -> Fault:
    return Fault(statements, frozenset(kind.split()), groups)


THREADGROUP_RACES = {
    "no barrier between write and read": _fault(
        "race uninitialised", "threadgroup float t[128]; t[i] = x[i];\n out[i] = t[127 - i]; //!"
    ),
    "no barrier between read and the next write": _fault(
        "race",
        "threadgroup float t[128]; for (int k = 0; k < 2; k++) {\n t[i] = x[i] + k; //!\n"
        f" {BARRIER}\n out[i] = t[(i + 1) & 127]; }}",
    ),
    "a simdgroup_barrier where simdgroups exchange": _fault(
        "race uninitialised",
        "threadgroup float t[128]; t[i] = x[i]; simdgroup_barrier(mem_flags::mem_threadgroup);\n"
        " out[i] = t[127 - i]; //!",
    ),
    "lanes that do not wait for each other": _fault(
        "race uninitialised", "threadgroup float t[128]; t[i] = x[i];\n out[i] = t[i ^ 1]; //!"
    ),
    "a barrier that orders nothing": _fault(
        "race",
        "threadgroup float t[128]; t[i] = x[i]; threadgroup_barrier(mem_flags::mem_none);\n out[i] = t[127 - i]; //!",
    ),
    "a barrier that orders device memory only": _fault(
        "race", f"threadgroup float t[128]; t[i] = x[i]; {DEVICE_BARRIER}\n out[i] = t[127 - i]; //!"
    ),
    "a simdgroup_barrier that orders device memory only": _fault(
        "race",
        "threadgroup float t[128]; t[i] = x[i]; simdgroup_barrier(mem_flags::mem_device);\n out[i] = t[i ^ 1]; //!",
    ),
    "one thread writes what all threads read": _fault(
        "race",
        f"threadgroup float t[128]; t[i] = 0; {BARRIER} float v = t[0];\n if (i == 70) t[0] = v + 1; //!\n out[i] = v;",
    ),
    "a store in a later step against a read in this one": _fault(
        "race",
        f"threadgroup float t[128]; t[i] = 0; for (int k = 0; k < 2; k++) {{ {BARRIER}\n"
        " float v = t[i ^ 64];\n t[i] = v + 1; //!\n } out[i] = t[i];",
    ),
    "a lane operation orders no write before a read": _fault(
        "race",
        "threadgroup float t[128]; t[i] = x[i]; float s = simd_sum(x[i]);\n out[i] = t[i ^ 1] + s; //!",
    ),
    "a plain write beside atomics": _fault(
        "race",
        f"threadgroup atomic_uint m; if (i == 0) atomic_store_explicit(&m, 0u, {RELAXED}); {BARRIER}\n"
        f" if (i != 64) atomic_fetch_add_explicit(&m, 1u, {RELAXED});\n"
        " if (i == 64) *(threadgroup uint*)&m = 5; //!\n out[i] = 0;",
    ),
    "double buffering with one buffer": _fault(
        "race",
        f"threadgroup float t[2][128]; t[0][i] = x[i]; float s = 0; for (int k = 0; k < 4; k++) {{ {BARRIER}\n"
        " s += t[0][127 - i]; //!\n t[0][i] = s; //!\n } out[i] = s;",
    ),
    "a tree reduction without a barrier at its end": _fault(
        "race",
        f"{FILLED} for (uint k = 64; k > 16; k /= 2) {{ if (i < k) t[i] += t[i + k]; {BARRIER} }}\n"
        " if (i < 16) t[i] += t[i + 16]; //!\n if (i < 8) t[i] += t[i + 8]; //!\n out[i] = 0;",
    ),
    "vector stores that overlap their neighbours": _fault(
        "race",
        "threadgroup float t[132]; threadgroup packed_float4* p = (threadgroup packed_float4*)(t + i);\n"
        f" *p = packed_float4(float4(x[i])); //!\n {BARRIER} out[i] = t[i];",
    ),
    "simdgroup_load of what another simdgroup writes": _fault(
        "race uninitialised",
        "threadgroup float t[256]; t[i] = x[i]; t[i + 128] = x[i]; simdgroup_float8x8 m;\n"
        " simdgroup_load(m, t + 64 * (sg ^ 1)); //!\n out[i] = m.thread_elements()[0];",
    ),
    "simdgroup_store over what another simdgroup reads": _fault(
        "race",
        f"threadgroup float t[128]; t[i] = x[i]; {BARRIER} simdgroup_float8x8 m(1.0f); float v = t[i];\n"
        f" if (sg == 1) simdgroup_store(m, t); //!\n {BARRIER} out[i] = v;",
    ),
    "tiles that overlap by one row": _fault(
        "race",
        "threadgroup float t[256]; simdgroup_float8x8 m(float(sg + 1));\n simdgroup_store(m, t + 56 * sg, 8); //!\n"
        f" {BARRIER} out[i] = t[i];",
    ),
}

DEVICE_RACES = {
    "two threadgroups write one element": _fault("race", "out[i] = x[i] + group; //!", 2),
    "one threadgroup reads what another writes": _fault(
        "race", "float v = out[255 - at]; //!\n out[at] = v + 1; //!", 2
    ),
    "a barrier does not order two threadgroups": _fault(
        "race", f"out[at] = x[i]; {DEVICE_BARRIER}\n out[at] = out[(at + 128) % 256] + 1; //!", 2
    ),
    "a barrier that orders threadgroup memory only": _fault(
        "race", f"out[at] = x[i]; {BARRIER}\n if (i == 0) out[at] = out[at + 64]; //!", 2
    ),
    "a simdgroup_barrier that orders threadgroup memory only": _fault(
        "race",
        "out[i] = x[i]; simdgroup_barrier(mem_flags::mem_threadgroup);\n float v = out[i ^ 1]; //!\n out[i] = v; //!",
    ),
    "a sum without atomics": _fault("race", "out[0] += x[i]; //!"),
    "a different value after the same value": _fault("race", "out[0] = 7.0f; out[1] = float(i / 64); //!"),
    "a plain read beside atomics": _fault(
        "race",
        f"atomic_fetch_add_explicit(n, 1u, {RELAXED}); //!\n out[i] = float(*(device uint*)n); //!",
    ),
    "every simdgroup stores its own tile to one place": _fault(
        "race", "simdgroup_float8x8 m = simdgroup_float8x8(1.0f + sg);\n simdgroup_store(m, out); //!"
    ),
    "a flag that is set plainly and polled": _fault(
        "race", "if (i == 0) out[127] = 1.0f;\n if (i == 64) out[64] = out[127]; //!"
    ),
}

BARRIERS = {
    "a barrier for some simdgroups": _fault("divergent_barrier", f"if (i < 64)\n {BARRIER} //!\n out[i] = x[i];"),
    "a barrier for some lanes": _fault("divergent_barrier", f"if (lane < 7)\n {BARRIER} //!\n out[i] = x[i];"),
    "two different barriers": _fault(
        "divergent_barrier", f"if (i < 64) {{\n {BARRIER} //!\n }} else {{\n {BARRIER}\n }} out[i] = x[i];"
    ),
    "a return before a barrier": _fault(
        "divergent_barrier",
        f"threadgroup float t[128]; if (i >= 100) return;\n t[i] = x[i];\n {BARRIER} //!\n out[i] = t[i];",
    ),
    "a barrier in a loop whose length differs": _fault(
        "divergent_barrier", f"for (uint k = 0; k < 1 + sg; k++)\n {BARRIER} //!\n out[i] = x[i];"
    ),
    "a barrier after a break of some threads": _fault(
        "divergent_barrier",
        f"for (uint k = 0; k < 4; k++) {{ if (k == 2 && i > 99) break;\n {BARRIER} //!\n }} out[i] = 0;",
    ),
    "a simdgroup_barrier that half of the lanes reach": _fault(
        "divergent_barrier", "if (lane < 16)\n simdgroup_barrier(mem_flags::mem_threadgroup); //!\n out[i] = 0;"
    ),
    "a simdgroup_barrier after a return of some lanes": _fault(
        "divergent_barrier", "if (i % 3 == 0) return;\n simdgroup_barrier(mem_flags::mem_device); //!\n out[i] = 0;"
    ),
    "a matrix product by a part of the simdgroup": _fault(
        "divergent_collective",
        "simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8>(1.0f); if (lane < 30)\n"
        " simdgroup_multiply(m, m, m); //!\n out[i] = m.thread_elements()[0];",
    ),
    "a matrix product after a return of some lanes": _fault(
        "divergent_collective",
        "simdgroup_float8x8 m(1.0f); if (i == 77) return;\n"
        " simdgroup_multiply_accumulate(m, m, m, m); //!\n out[i] = m.thread_elements()[0];",
    ),
}

OUT_OF_BOUNDS = {
    "a read past a buffer": _fault("out_of_bounds", "out[i] = x[i + 1]; //!"),
    "a write past a buffer": _fault("out_of_bounds", "out[i + 1] = x[i]; //!"),
    "a read before a buffer": _fault("out_of_bounds", "out[i] = x[int(i) - 1]; //!"),
    "a write before a buffer": _fault("out_of_bounds", "out[int(i) - 3] = x[i]; //!"),
    "a write kilobytes past a buffer": _fault("out_of_bounds", "out[i + 5000] = x[i]; //!"),
    "a write megabytes past a buffer": _fault("out_of_bounds", "out[i + 3000000] = x[i]; //!"),
    "a write megabytes before a buffer": _fault("out_of_bounds", "out[long(i) - 3000000] = x[i]; //!"),
    "a 32-bit index that wraps": _fault("out_of_bounds", "uint far = i - 128;\n out[far] = 1; //!"),
    "a read past constant data": _fault("out_of_bounds", "out[i] = c[i]; //!"),
    "a vector whose last element lies outside": _fault(
        "out_of_bounds",
        "float4 v = *(device const packed_float4*)(x + i - i % 126); //!\n out[i] = v.w + v.x + v.y + v.z;",
    ),
    "float3 elements taken for packed ones": _fault(
        "out_of_bounds", "device const float3* p = (device const float3*)x;\n out[i] = p[i % 42].x; //!"
    ),
    "an atomic past a buffer": _fault(
        "out_of_bounds", f"atomic_fetch_add_explicit(n + (i == 5 ? 1 : 0), 1u, {RELAXED}); //!\n out[i] = 0;"
    ),
    "an atomic megabytes past a buffer": _fault(
        "out_of_bounds", f"atomic_fetch_add_explicit(n + (i == 5 ? 900000 : 0), 1u, {RELAXED}); //!\n out[i] = 0;"
    ),
    "simdgroup_load past a buffer": _fault(
        "out_of_bounds", "simdgroup_float8x8 m;\n simdgroup_load(m, x + 72); //!\n out[i] = m.thread_elements()[0];"
    ),
    "simdgroup_store past a buffer": _fault(
        "out_of_bounds", "simdgroup_float8x8 m(1.0f);\n if (sg == 0) simdgroup_store(m, out, 18); //!"
    ),
    "simdgroup_load past a threadgroup array": _fault(
        "out_of_bounds",
        f"{FILLED} simdgroup_float8x8 m;\n simdgroup_load(m, t, 8, ulong2(0, 9)); //!\n"
        " out[i] = m.thread_elements()[0];",
    ),
    "a threadgroup array too short": _fault(
        "out_of_bounds",
        f"threadgroup float t[128]; t[0] = 0;\n t[i + 1] = x[i]; //!\n {BARRIER} out[i] = t[i];",
    ),
    "an element just below an array": _fault(
        "out_of_bounds",
        f"threadgroup float low[4]; threadgroup float t[128]; low[0] = 0; t[i] = 0; {BARRIER}\n"
        " out[i] = t[int(i) - 1]; //!",
    ),
    "only the last element of a vector lies outside an array": _fault(
        "out_of_bounds",
        f"threadgroup float t[130]; for (uint k = i; k < 130; k += 128) t[k] = 0; {BARRIER}\n"
        " float3 v = *(threadgroup packed_float3*)(t + i + 1); //!\n out[i] = v.z;",
    ),
    "an index far outside a threadgroup array": _fault(
        "out_of_bounds", f"{FILLED} t[i + 4000000] = 1; //!\n out[i] = t[i];"
    ),
}

UNINITIALISED = {
    "half of an array": _fault(
        "uninitialised", f"threadgroup float t[128]; if (i < 64) t[i] = x[i]; {BARRIER}\n out[i] = t[i]; //!"
    ),
    "one of all halves in an array of floats": _fault(
        "uninitialised",
        "threadgroup float pool[64]; threadgroup half* t = (threadgroup half*)pool;"
        f" if (i != 5) t[i] = half(x[i]); {BARRIER}\n out[i] = float(t[i ^ 33]); //!",
    ),
    "one byte of a word": _fault(
        "uninitialised",
        "threadgroup uint w[128]; threadgroup uchar* b = (threadgroup uchar*)(w + i);"
        f" b[0] = 1; b[1] = 1; b[3] = 1; {BARRIER}\n out[i] = float(w[i]); //!",
    ),
    "a member of a struct": _fault(
        "uninitialised",
        f"struct Pair {{ float a; float b; }}; threadgroup Pair t[128]; t[i].a = x[i]; {BARRIER}\n"
        " out[i] = t[127 - i].b; //!",
    ),
    "what the threadgroup before has left": _fault(
        "uninitialised",
        f"threadgroup float t[128]; if (group == 0) t[i] = x[i]; {BARRIER}\n out[at] = t[i]; //!",
        2,
    ),
    "a counter that is only added to": _fault(
        "uninitialised",
        f"threadgroup atomic_uint m;\n atomic_fetch_add_explicit(&m, 1u, {RELAXED}); //!\n out[i] = 0;",
    ),
    "the last row of a tile": _fault(
        "uninitialised",
        f"threadgroup float t[64]; if (i < 56) t[i] = x[i]; {BARRIER} simdgroup_float8x8 m;\n"
        " simdgroup_load(m, t); //!\n out[i] = m.thread_elements()[0];",
    ),
    "a tile read with too long rows": _fault(
        "uninitialised",
        f"threadgroup float t[128]; if (i < 64) t[i] = x[i]; {BARRIER} simdgroup_float8x8 m;\n"
        " simdgroup_load(m, t, 10); //!\n out[i] = m.thread_elements()[0];",
    ),
}

READ_ONLY = {
    "a write to a const buffer": _fault(
        "read_only_write", "if (i < 4) const_cast<device float*>(x)[i] = 1.0f; //!\n out[i] = 0;"
    ),
    "a matrix stored to a const buffer": _fault(
        "read_only_write",
        "simdgroup_float8x8 m(1.0f); device float* p = const_cast<device float*>(x);\n"
        " if (sg == 0) simdgroup_store(m, p); //!\n out[i] = 0;",
    ),
    "an atomic on a const buffer": _fault(
        "read_only_write",
        "device atomic_uint* a = (device atomic_uint*)const_cast<device float*>(x);\n"
        f" atomic_fetch_or_explicit(a, 0u, {RELAXED}); //!\n out[i] = 0;",
    ),
}

FAULTS = THREADGROUP_RACES | DEVICE_RACES | BARRIERS | OUT_OF_BOUNDS | UNINITIALISED | READ_ONLY

"""The checker's judgement of hard cases: correct kernels that look wrong stay silent, faults that look right do not."""

from __future__ import annotations

import pytest
import torch

from inductor_mps_attention.simulator import CheckError
from inductor_mps_attention.simulator.metal import compile_shader

KERNEL = """#include <metal_stdlib>
using namespace metal;
kernel void k(device float* out, device const float* x, uint i [[thread_index_in_threadgroup]],
              uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"

SILENT = {
    "neighbouring halves in an array of floats": f"""
        threadgroup float pool[64]; threadgroup half* t = (threadgroup half*)pool;
        t[i] = half(x[i]); {BARRIER} out[i] = float(t[i ^ 33]);""",
    "neighbouring bytes in an array of words": f"""
        threadgroup uint pool[32]; threadgroup uchar* t = (threadgroup uchar*)pool;
        t[i] = uchar(i); {BARRIER} out[i] = float(t[127 - i]);""",
    "an array reused with another type": f"""
        threadgroup float4 pool[32]; threadgroup float* t = (threadgroup float*)pool;
        t[i] = x[i]; {BARRIER} float4 v = pool[i / 4]; {BARRIER} ((threadgroup uint*)pool)[i] = i; {BARRIER}
        out[i] = v.x + float(((threadgroup uint*)pool)[127 - i]);""",
    "the padding of a float3 is never written": f"""
        threadgroup float3 t[128]; threadgroup float3 u[128]; t[i] = float3(x[i], 1.0f, 2.0f); {BARRIER}
        u[i] = t[127 - i]; {BARRIER} out[i] = u[i ^ 64].x + u[i ^ 64].z;""",
    "a struct copied whole": f"""
        struct Pair {{ float a; int b; float c[6]; }}; threadgroup Pair t[4];
        if (i < 4) {{ Pair p; p.a = 1; p.b = 2; for (int k = 0; k < 6; k++) p.c[k] = x[k]; t[i] = p; }} {BARRIER}
        Pair q = t[i % 4]; out[i] = q.a + float(q.b) + q.c[5];""",
    "reads before a lane operation, writes after it": f"""
        threadgroup float t[4]; if (lane == 0) t[sg] = 1.0f; {BARRIER}
        float v = t[sg]; float s = simd_sum(v); if (lane == 0) t[sg] = s; {BARRIER} out[i] = t[3 - sg];""",
    "columns owned by simdgroups": """
        threadgroup float t[128]; for (int k = 0; k < 3; k++) {
        t[i] = float(k); simdgroup_barrier(mem_flags::mem_threadgroup);
        out[i] = t[sg * 32 + 31 - lane]; simdgroup_barrier(mem_flags::mem_threadgroup); }""",
    "pointers to private arrays": """
        float a[9]; thread float* p = a; for (int k = 0; k < 9; k++) p[k] = x[k]; float s = 0;
        for (int k = 0; k < 9; k++) s += *(p + k); out[i] = simd_sum(s);""",
    "atomics and a barrier before the plain read": f"""
        threadgroup atomic_uint n; if (i == 0) atomic_store_explicit(&n, 0u, memory_order_relaxed); {BARRIER}
        atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed); {BARRIER}
        out[i] = float(atomic_load_explicit(&n, memory_order_relaxed));""",
    "double buffering with one barrier a step": f"""
        threadgroup float t[2][128]; t[0][i] = x[i]; float s = 0;
        for (int k = 0; k < 6; k++) {{ {BARRIER} s += t[k % 2][127 - i]; t[(k + 1) % 2][i] = s; }} out[i] = s;""",
    "an inner barrier reached by all in a loop of uniform length": f"""
        threadgroup float t[128]; float s = 0; for (uint k = 0; k < uint(x[0]) + 3; k++) {{
        t[i] = s; {BARRIER} s += t[i ^ 64] + 1; {BARRIER} }} out[i] = s;""",
}

REPORTED = {
    "one thread writes what all threads read": (
        f"threadgroup float t[4]; t[i % 4] = 0; {BARRIER} float v = t[0];\n"
        " if (i == 70) t[0] = v + 1; //!\n out[i] = v;",
        {"race"},
    ),
    "halves in an array of floats, not all written": (
        "threadgroup float pool[64]; threadgroup half* t = (threadgroup half*)pool;"
        f" if (i != 5) t[i] = half(x[i]); {BARRIER}\n out[i] = float(t[i ^ 33]); //!",
        {"uninitialised"},
    ),
    "a different value after the same value": (
        "out[0] = 7.0f; out[1] = float(i / 64); //!",
        {"race"},
    ),
    "a store in a later step against a read in this one": (
        f"threadgroup float t[128]; t[i] = 0; for (int k = 0; k < 2; k++) {{ {BARRIER}\n"
        " float v = t[i ^ 64];\n t[i] = v + 1; //!\n } out[i] = t[i];",
        {"race"},
    ),
    "a lane operation orders no write before a read": (
        "threadgroup float t[128]; t[i] = x[i]; float s = simd_sum(x[i]);\n out[i] = t[i ^ 1] + s; //!",
        {"race"},
    ),
    "only the last element of a vector lies outside": (
        "threadgroup float t[130]; for (uint k = i; k < 130; k += 128) t[k] = 0;"
        f" {BARRIER}\n float3 v = *(threadgroup packed_float3*)(t + i + 1); //!\n out[i] = v.z;",
        {"out_of_bounds"},
    ),
    "one byte of a word is not initialised": (
        "threadgroup uint w[128]; threadgroup uchar* b = (threadgroup uchar*)(w + i);"
        f" b[0] = 1; b[1] = 1; b[3] = 1; {BARRIER}\n"
        " out[i] = float(w[i]); //!",
        {"uninitialised"},
    ),
    "a plain write beside atomics": (
        "threadgroup atomic_uint n; if (i == 0) atomic_store_explicit(&n, 0u, memory_order_relaxed);"
        f" {BARRIER} if (i != 64) atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed);\n"
        " if (i == 64) *(threadgroup uint*)&n = 5; //!\n out[i] = 0;",
        {"race"},
    ),
    "a simdgroup_barrier that half of the lanes reach": (
        "if (lane < 16)\n simdgroup_barrier(mem_flags::mem_threadgroup); //!\n out[i] = 0;",
        {"divergent_barrier"},
    ),
    "an element just below an array": (
        f"threadgroup float low[4]; threadgroup float t[128]; low[0] = 0; t[i] = 0; {BARRIER}\n"
        " out[i] = t[int(i) - 1]; //!",
        {"out_of_bounds"},
    ),
    "a product in a part of the simdgroup": (
        "simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8>(1.0f); if (lane < 30)\n"
        " simdgroup_multiply(m, m, m); //!\n"
        " out[i] = m.thread_elements()[0];",
        {"divergent_collective"},
    ),
}


def _launch(statements: str, order: str):
    kernel = compile_shader(KERNEL + statements + "\n}\n", check="full", order=order).k
    out = torch.zeros(128)
    kernel(out, torch.arange(128.0), threads=128, group_size=128)
    return kernel, out


@pytest.mark.parametrize("name", SILENT)
def test_a_correct_kernel_is_left_alone(name: str):
    for order in ("forward", "reverse"):
        kernel, _ = _launch(SILENT[name], order)
        assert kernel.notes == (), order


@pytest.mark.parametrize("name", REPORTED)
def test_a_hidden_fault_is_found(name: str):
    statements, kinds = REPORTED[name]
    with pytest.raises(CheckError) as caught:
        _launch(statements, "forward")
    line = next(number for number, text in enumerate(statements.split("\n"), 5) if "//!" in text)
    assert {(report.kind, report.line) for report in caught.value.reports} >= {(kind, line) for kind in kinds}, str(
        caught.value
    )


def test_a_report_counts_for_each_place_once():
    """A fault in every thread of every threadgroup is one report, and others still find room."""
    with pytest.raises(CheckError) as caught:
        _launch("threadgroup float t[128];\n float a = t[i];\n float b = t[i ^ 1];\n out[i + 1] = a + b;", "forward")
    assert len(caught.value.reports) <= 3
    assert {report.kind for report in caught.value.reports} == {"uninitialised", "out_of_bounds"}


def test_counters_are_exact():
    kernel, _ = _launch(
        f"threadgroup float t[128]; t[i] = x[i]; {BARRIER} out[i] = t[127 - i] + simd_sum(1.0f); {BARRIER}", "forward"
    )
    counters = kernel.counters
    assert counters["device_bytes_read"] == counters["device_bytes_written"] == 512
    assert counters["threadgroup_bytes_read"] == counters["threadgroup_bytes_written"] == 512
    assert (counters["barriers"], counters["collectives"], counters["threadgroup_bytes"]) == (2, 4, 512)


def test_launches_after_a_faulty_one_start_clean():
    for _ in range(2):
        with pytest.raises(CheckError):
            _launch(REPORTED["a different value after the same value"][0], "forward")
        _launch("out[i] = x[i];", "forward")

"""Check mode: each fault is found, with its kind and its line in the Metal text; correct kernels are left alone."""

from __future__ import annotations

import pytest
import torch

from inductor_mps_attention.simulator import CheckError
from inductor_mps_attention.simulator.metal import compile_shader

# The statements start at line 9; `//!` marks the line that a report must name.
KERNEL = """#include <metal_stdlib>
using namespace metal;
kernel void k(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
              uint tid [[thread_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
              uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float t[128];
  threadgroup float u[32];
  const uint at = group * 128 + tid;
"""

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"

FAULTS = {
    "missing barrier": ("t[tid] = x[tid];\n out[at] = t[127 - tid]; //!", {"race", "uninitialised"}),
    "missing second barrier": (
        f"for (int i = 0; i < 2; i++) {{\n t[tid] = x[tid] + i; //!\n {BARRIER}\n out[at] = t[(tid + 1) & 127]; }}",
        {"race"},
    ),
    "simdgroup_barrier where a threadgroup_barrier is needed": (
        "t[tid] = x[tid];\n simdgroup_barrier(mem_flags::mem_threadgroup);\n out[at] = t[127 - tid]; //!",
        {"race", "uninitialised"},
    ),
    "lanes that do not wait for each other": (
        "t[tid] = x[tid];\n out[at] = t[tid ^ 1]; //!",
        {"race", "uninitialised"},
    ),
    "barrier that orders nothing": (
        "t[tid] = x[tid];\n threadgroup_barrier(mem_flags::mem_none);\n out[at] = t[127 - tid]; //!",
        {"race"},
    ),
    "barrier that orders device memory only": (
        "t[tid] = x[tid];\n threadgroup_barrier(mem_flags::mem_device);\n out[at] = t[127 - tid]; //!",
        {"race"},
    ),
    "uninitialised threadgroup memory": (
        f"if (tid < 64) t[tid] = x[tid];\n {BARRIER}\n out[at] = t[tid]; //!",
        {"uninitialised"},
    ),
    "threadgroup array too short": (
        f"t[tid + 1] = x[tid]; //!\n {BARRIER}\n out[at] = t[tid];",
        {"out_of_bounds", "uninitialised"},
    ),
    "read past a buffer": ("out[at] = x[tid + 1]; //!", {"out_of_bounds"}),
    "write past a buffer": ("out[at + 1] = x[tid]; //!", {"out_of_bounds"}),
    "read before a buffer": ("out[at] = x[int(tid) - 1]; //!", {"out_of_bounds"}),
    "barrier in divergent flow": (f"if (tid < 64)\n {BARRIER} //!\n out[at] = x[tid];", {"divergent_barrier"}),
    "two different barriers": (
        f"if (tid < 64) {{\n {BARRIER} //!\n }} else {{\n {BARRIER}\n }} out[at] = x[tid];",
        {"divergent_barrier"},
    ),
    "return before a barrier": (
        f"if (tid >= 100) return;\n t[tid] = x[tid];\n {BARRIER} //!\n out[at] = t[tid];",
        {"divergent_barrier"},
    ),
    "simd_sum in a part of a simdgroup": (
        "float s = 0;\n if (lane < 16) s = simd_sum(x[tid]); //!\n out[at] = s;",
        {"divergent_collective"},
    ),
    "race of two threadgroups": ("out[tid] = x[tid] + group; //!", {"race"}),
    "race in device memory": (
        f"out[at] = x[tid];\n {BARRIER}\n if (tid == 0) out[group * 128] = out[group * 128 + 64]; //!",
        {"race"},
    ),
    "write to constant data": (
        "if (group == 0) const_cast<device float*>(x)[tid] = 1.0f; //!\n out[at] = 0;",
        {"read_only_write"},
    ),
    "more than 32 KiB of threadgroup memory": (
        "threadgroup float big[8100]; //!\n big[tid] = x[tid];\n t[tid] = 0; u[lane] = 0; out[at] = big[tid];",
        {"threadgroup_memory"},
    ),
}

CORRECT = {
    "a barrier": f"t[tid] = x[tid]; {BARRIER} out[at] = t[127 - tid];",
    "a simdgroup_barrier within a simdgroup": (
        "t[tid] = x[tid]; simdgroup_barrier(mem_flags::mem_threadgroup); out[at] = t[tid ^ 1];"
    ),
    "a device barrier": (
        "out[at] = x[tid]; threadgroup_barrier(mem_flags::mem_device);"
        " if (tid == 0) out[group * 128] = out[group * 128 + 64];"
    ),
    "atomics": (
        "device atomic_float* a = (device atomic_float*)out;"
        " atomic_fetch_add_explicit(a, x[tid], memory_order_relaxed);"
    ),
    "two arrays used in turn": (
        f"t[tid] = x[tid]; {BARRIER} if (lane == 0) u[tid / 32] = t[tid]; {BARRIER} out[at] = u[(tid / 32) ^ 1];"
    ),
}


def launch(statements: str, order: str = "forward"):
    kernel = compile_shader(KERNEL + statements + "\n}\n", check="full", order=order).k
    out = torch.zeros(256)
    kernel(out, torch.arange(128.0), threads=256, group_size=128)
    return kernel, out


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_with_its_kind_and_line(name: str):
    statements, kinds = FAULTS[name]
    with pytest.raises(CheckError) as caught:
        launch(statements)
    marked = [number for number, line in enumerate(statements.split("\n"), 9) if "//!" in line]
    found = {(report.kind, report.line) for report in caught.value.reports}
    assert found & {(kind, line) for kind in kinds for line in marked}, str(caught.value)
    assert {report.kind for report in caught.value.reports} <= kinds, str(caught.value)


@pytest.mark.parametrize("name", CORRECT)
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_correct_kernel_is_left_alone(name: str, order: str):
    kernel, _ = launch(CORRECT[name], order)
    assert kernel.notes == ()


def test_a_fault_is_found_whatever_the_schedule():
    statements, _ = FAULTS["missing second barrier"]
    for order in ("reverse", "random:1"):
        with pytest.raises(CheckError):
            launch(statements, order)


def test_the_same_value_stored_by_all_threads_is_a_note():
    kernel, out = launch("out[group * 128] = 7.0f;")
    assert {note.kind for note in kernel.notes} == {"same_value_write"}
    assert out[0].item() == 7


def test_accesses_inside_library_functions_have_the_line_of_the_call():
    statements = "simdgroup_float8x8 m;\n simdgroup_load(m, t, 8); //!\n simdgroup_store(m, out + group * 128, 8);"
    with pytest.raises(CheckError) as caught:
        launch(statements)
    assert ("uninitialised", 10) in {(report.kind, report.line) for report in caught.value.reports}


def test_an_access_in_an_inlined_function_has_its_own_line():
    source = """inline float load(device const float* p, uint i) {
  return p[i + 1];
}
kernel void k(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  out[i] = load(x, i);
}
"""
    with pytest.raises(CheckError) as caught:
        compile_shader(source, check="full").k(torch.zeros(4), torch.zeros(4), threads=4, group_size=4)
    assert {(report.kind, report.line) for report in caught.value.reports} == {("out_of_bounds", 2)}


def test_both_lines_of_a_race_are_given():
    with pytest.raises(CheckError) as caught:
        launch(FAULTS["missing second barrier"][0])
    assert "line 12" in str(caught.value)


def test_tensors_of_one_storage_stay_one_memory():
    """What is written through one view is read through the other, and no view's copy overwrites another's results."""
    source = "kernel void k(device float* a, device float* b, device float* c, uint i [[thread_position_in_grid]])"
    kernel = compile_shader(source + " { a[i] = 1; b[i] = a[i] + 1; c[i] = b[i] + 1; }", check="full").k
    whole = torch.zeros(12)
    kernel(whole[8:], whole[4:], whole, threads=4, group_size=4)
    assert whole.tolist() == [3.0] * 4 + [2.0] * 4 + [1.0] * 4


def test_a_view_ends_where_its_storage_ends():
    source = "kernel void k(device float* a, constant float& x, uint i [[thread_position_in_grid]]) { a[i] = (&x)[i]; }"
    kernel = compile_shader(source, check="full").k
    whole = torch.zeros(8)
    kernel(whole[4:], 1.0, threads=1, group_size=1)
    with pytest.raises(CheckError) as caught:
        kernel(whole[4:], 1.0, threads=2, group_size=2)
    assert {report.kind for report in caught.value.reports} == {"out_of_bounds"}


def test_bytes_are_counted():
    kernel, _ = launch("out[at] = x[tid] + x[tid];")
    assert (kernel.counters["device_bytes_written"], kernel.counters["threads"]) == (1024, 256)
    assert kernel.counters["device_bytes_read"] in (1024, 2048)  # the compiler may join the two reads


def test_results_of_a_faulty_launch_are_copied_back():
    kernel = compile_shader(KERNEL + "out[at] = 3.0f; x[tid + 1];\n out[at + 1] = 3.0f; }", check="full").k
    out = torch.zeros(256)
    with pytest.raises(CheckError):
        kernel(out, torch.zeros(128), threads=256, group_size=128)
    assert out[0].item() == 3

"""Counters of a launch: exact, the same each time, and the same with and without check mode but for bytes."""

from __future__ import annotations

import torch

from inductor_mps_attention.simulator.metal import compile_shader

HEAD = """#include <metal_stdlib>
using namespace metal;
kernel void k(device float* out, device const float* x, uint i [[thread_position_in_threadgroup]],
              uint at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
BUSY = f"""
  threadgroup float t[128]; t[i] = x[i]; {BARRIER}
  float v = t[127 - i] + simd_sum(1.0f) + simd_shuffle_xor(x[i], 1) + quad_shuffle(1.0f, 0) + simd_broadcast(1.0f, 3);
  v += exp2(v) + fast::exp2(v); float4 w = exp2(float4(v)); simdgroup_float8x8 m(1.0f);
  for (int k = 0; k < 3; k++) simdgroup_multiply_accumulate(m, m, m, m);
  {BARRIER} simdgroup_barrier(mem_flags::mem_device); out[at] = v + w.x + w.y + m.thread_elements()[0];
"""


def counters(statements: str, check: str = "full", threads: int = 256, **options: object) -> dict[str, int]:
    kernel = compile_shader(f"{HEAD}{statements}\n}}\n", check=check, **options).k
    kernel(torch.zeros(threads), torch.zeros(128), threads=threads, group_size=128)
    return kernel.counters


def test_each_counter_is_exact():
    expected = {
        "threadgroups": 2,
        "threads": 256,
        "products": 2 * 4 * 3,
        "collectives": 2 * 4,
        "shuffles": 2 * 4 * 3,
        "divergent": 0,
        "barriers": 2 * 2,
        "simdgroup_barriers": 2 * 4,
        "atomics": 0,
        "exp2_calls": 256 * 6,
        "threadgroup_bytes": 512,
        "threadgroup_bytes_read": 256 * 4,
        "threadgroup_bytes_written": 256 * 4,
        "device_bytes_written": 256 * 4,
    }
    found = counters(BUSY)
    assert {name: found[name] for name in expected} == expected
    assert found["device_bytes_read"] in (256 * 4, 2 * 256 * 4)  # a compiler may join two reads of one element


def test_counters_are_the_same_each_time_and_with_any_schedule():
    """Four times 64 threadgroups over two workers: each has counters of its own."""
    first = counters(BUSY, check="off", threads=8192, workers=2)
    assert first["exp2_calls"] == 8192 * 6
    for options in ({"workers": 2}, {"workers": 1}, {"order": "reverse"}, {"order": "random:3"}):
        assert counters(BUSY, check="off", threads=8192, **options) == first, options


def test_without_check_mode_only_bytes_are_missing():
    checked, plain = counters(BUSY), counters(BUSY, check="off")
    bytes_moved = {name for name in checked if name.endswith(("_read", "_written"))}
    assert len(bytes_moved) == 4
    assert {name: checked[name] for name in checked.keys() - bytes_moved} == {
        name: plain[name] for name in plain.keys() - bytes_moved
    }
    assert {plain[name] for name in bytes_moved} == {0}


def test_a_kernel_without_fibers_is_counted_too():
    assert counters("out[at] = exp2(x[i]);", check="off")["exp2_calls"] == 256


def test_operations_by_a_part_of_a_simdgroup_are_counted_apart():
    statements = "float s = 0; if (lane < 5) s = simd_sum(x[i]); else s = simd_shuffle(x[i], 9); out[at] = s;"
    found = counters(statements, check="off")
    assert (found["collectives"], found["shuffles"], found["divergent"]) == (8, 8, 16)


def test_atomics_move_bytes():
    found = counters("atomic_fetch_add_explicit((device atomic_float*)out, 1.0f, memory_order_relaxed);")
    assert (found["atomics"], found["device_bytes_read"], found["device_bytes_written"]) == (256, 1024, 1024)

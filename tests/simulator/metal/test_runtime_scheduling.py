"""Threads, barriers and workers: results do not depend on the schedule, every thread runs, and nothing hangs."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from inductor_mps_attention.simulator import CheckError
from inductor_mps_attention.simulator.metal import compile_shader

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"

# A tree sum with barriers, lane operations, and a product: all ways of waiting.
TREE_SUM = (
    HEADER
    + """#include <metal_simdgroup_matrix>
kernel void k(device float* out, device const float* x, uint i [[thread_index_in_threadgroup]],
              uint size [[threads_per_threadgroup]], uint group [[threadgroup_position_in_grid]],
              uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup float t[256];
  t[i] = x[group * size + i];
  for (uint half_size = 128; half_size > 32; half_size /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i < half_size) t[i] += t[i + half_size];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float v = simd_sum(t[lane] * 0.1f) + simd_shuffle_xor(t[lane + 32], 5);
  simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8>(0.25f);
  m.thread_elements()[0] = v;
  simdgroup_multiply(m, m, m);
  out[group * size + i] = m.thread_elements()[1] + float(sg);
}
"""
)


def test_results_are_the_same_bits_whatever_the_schedule_and_the_workers():
    x = torch.randn(40 * 256)
    results = []
    for order in ("forward", "reverse", "random:1", "random:2"):
        for workers in (1, 2, 5):
            out = torch.zeros(40 * 256)
            compile_shader(TREE_SUM, order=order, workers=workers).k(out, x, threads=40 * 256, group_size=256)
            results.append(out)
    assert results[0].isfinite().all()
    assert all(torch.equal(out, results[0]) for out in results)


@pytest.mark.parametrize("fibers", [False, True])
def test_every_thread_of_an_uneven_grid_runs_once(fibers: bool):
    wait = "threadgroup_barrier(mem_flags::mem_none);" if fibers else ""
    library = compile_shader(
        HEADER
        + f"""kernel void k(device int* out, uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
              uint3 own [[thread_position_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]],
              uint3 full [[dispatch_threads_per_threadgroup]]) {{
  {wait}
  if (all(at == group * full + own)) out[(at.z * grid.y + at.y) * grid.x + at.x] += 1;
}}
"""
    )
    for workers in (1, 3):
        for size in ((1, 1, 1), (37, 1, 1), (13, 7, 3), (100, 33, 2)):
            out = torch.zeros(size[2], size[1], size[0], dtype=torch.int32)
            library.k(out, threads=list(size), group_size=[8, 4, 2])
            assert (out == 1).all(), (workers, size)


def test_a_thousand_threads_with_large_private_arrays():
    library = compile_shader(
        HEADER
        + """kernel void k(device float* out, uint i [[thread_index_in_threadgroup]]) {
  float a[1024];
  for (int j = 0; j < 1024; j++) a[j] = float(j ^ int(i));
  threadgroup_barrier(mem_flags::mem_none);
  float s = 0;
  for (int j = 0; j < 1024; j++) s += a[j] * float(j % 7);
  out[i] = s;
}
"""
    )
    out = torch.zeros(1024)
    library.k(out, threads=1024, group_size=1024)
    j = torch.arange(1024)
    expected = torch.stack([((j ^ i) * (j % 7)).sum() for i in range(1024)]).float()
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=0)


def test_a_forked_child_can_launch_again():
    """OS threads that helped with earlier launches do not exist in a child; waiting for them would hang it."""
    library = compile_shader(TREE_SUM, workers=2)
    x, out = torch.randn(8 * 256), torch.zeros(8 * 256)
    library.k(out, x, threads=8 * 256, group_size=256)
    child = os.fork()
    if child == 0:
        again = torch.zeros(8 * 256)
        library.k(again, x, threads=8 * 256, group_size=256)
        os._exit(0 if torch.equal(again, out) else 1)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)


def test_launches_from_several_threads_at_once():
    library = compile_shader(TREE_SUM, workers=2)
    x, out = torch.randn(8 * 256), torch.zeros(8 * 256)
    library.k(out, x, threads=8 * 256, group_size=256)

    def launch(_: int) -> bool:
        again = torch.zeros(8 * 256)
        library.k(again, x, threads=8 * 256, group_size=256)
        return torch.equal(again, out)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(launch, range(40)))


def test_threads_that_wait_for_ever_are_reported():
    """Half of the simdgroups at a barrier in a loop that the others have left: a hang on a GPU."""
    source = (
        HEADER
        + """kernel void k(device float* out, uint i [[thread_index_in_threadgroup]],
              uint sg [[simdgroup_index_in_threadgroup]]) {
  for (uint step = 0; step < 1 + sg; step++) threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = 1.0f;
}
"""
    )
    out = torch.zeros(128)
    with pytest.raises(CheckError) as caught:
        compile_shader(source, check="full").k(out, threads=128, group_size=128)
    assert {report.kind for report in caught.value.reports} == {"divergent_barrier"}
    assert (out == 1).all()


def test_simdgroups_that_wait_for_each_other_through_atomics_make_progress():
    """Threads are cooperative here: without making way, the first simdgroup would spin for ever."""
    source = (
        HEADER
        + """kernel void k(device uint* out, uint i [[thread_index_in_threadgroup]],
              uint sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup atomic_uint turn;
  if (i == 0) atomic_store_explicit(&turn, 3u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i % 32 == 0) {
    while (atomic_load_explicit(&turn, memory_order_relaxed) != sg) {}
    out[sg] = 100 - atomic_fetch_sub_explicit(&turn, 1u, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_device);
}
"""
    )
    for order in ("forward", "reverse", "random:5"):
        out = torch.zeros(4, dtype=torch.int32)
        compile_shader(source, order=order).k(out, threads=128, group_size=128)
        assert out.tolist() == [100, 99, 98, 97]


def test_an_endless_spin_is_reported():
    source = (
        HEADER
        + """kernel void k(device atomic_uint* flag, uint i [[thread_index_in_threadgroup]]) {
  threadgroup_barrier(mem_flags::mem_none);
  while (atomic_load_explicit(flag, memory_order_relaxed) == 0u) {}
}
"""
    )
    with pytest.raises(CheckError, match="spins on an atomic"):
        compile_shader(source, workers=1).k(torch.zeros(1, dtype=torch.int32), threads=32, group_size=32)
    compile_shader(source, workers=1).k(torch.ones(1, dtype=torch.int32), threads=32, group_size=32)


def test_threadgroup_memory_starts_as_nan_in_every_threadgroup():
    """What one threadgroup left must not help the next one to a right result."""
    source = (
        HEADER
        + """kernel void k(device float* out, uint group [[threadgroup_position_in_grid]],
              uint i [[thread_index_in_threadgroup]]) {
  threadgroup float t[32];
  out[group * 32 + i] = t[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  t[i] = 1.0f;
}
"""
    )
    out = torch.zeros(4 * 32)
    compile_shader(source, workers=1).k(out, threads=128, group_size=32)
    assert out.isnan().all()


@pytest.mark.parametrize("workers", [1, 3])
def test_atomics_lose_nothing(workers: int):
    source = (
        HEADER
        + """kernel void k(device atomic_uint* count, device atomic_int* least, device atomic_int* most,
              device atomic_float* sum,
              device atomic_uint* bits, device atomic_uint* swapped, uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(count, 2u, memory_order_relaxed);
  atomic_fetch_min_explicit(least, 50 - int(i), memory_order_relaxed);
  atomic_fetch_max_explicit(most, int(i) - 50, memory_order_relaxed);
  atomic_fetch_add_explicit(sum, 0.5f, memory_order_relaxed);
  atomic_fetch_or_explicit(bits, 1u << (i % 32), memory_order_relaxed);
  uint seen = atomic_load_explicit(swapped, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(swapped, &seen, seen + 3, memory_order_relaxed,
                                                memory_order_relaxed)) {}
}
"""
    )
    count, least, most, bits, swapped = (torch.zeros(1, dtype=torch.int32) for _ in range(5))
    total = torch.zeros(1)
    library = compile_shader(source, workers=workers)
    library.k(count, least, most, total, bits, swapped, threads=20000, group_size=64)
    values = [int(t) for t in (count, least, most, bits, swapped)]
    assert values == [40000, 50 - 19999, 19999 - 50, -1, 60000]
    assert total == 10000

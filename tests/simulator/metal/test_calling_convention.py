"""Kernels are called as those of torch.mps.compile_shader are: what each kind of argument is, how grids are cut."""

from __future__ import annotations

import numpy
import pytest
import torch

from inductor_mps_attention.simulator import CheckError
from inductor_mps_attention.simulator.metal import ShaderAssertionError, ShaderLaunchError, compile_shader

SOURCE = """
#include <metal_stdlib>
#include <c10/metal/error.h>
using namespace metal;
kernel void scaled(device float* out, constant float* x, constant float& a, constant long& n,
                   uint i [[thread_position_in_grid]]) {
  if (i < n) out[i] = a * x[i];
}
kernel void sizes(device int* out, constant long& a, constant int& b, constant short& c, constant bool& d,
                  constant long* e, constant float* f, constant half& g, constant bfloat& h) {
  out[0] = int(a); out[1] = b; out[2] = c; out[3] = d; out[4] = int(e[0] + e[1] + e[2]); out[5] = int(f[0] + f[1]);
  out[6] = int(g); out[7] = int(float(h));
}
kernel void shape(device uint* out, uint3 at [[thread_position_in_grid]], uint3 group [[threads_per_threadgroup]],
                  uint3 grid [[threads_per_grid]], uint3 groups [[threadgroups_per_grid]],
                  uint3 where [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                  uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint values[10] = {group.x, group.y, grid.x, grid.y, groups.x, groups.y, where.x, where.y, index,
                           simdgroup * 32 + lane};
  for (uint i = 0; i < 10; i++) out[(at.y * grid.x + at.x) * 10 + i] = values[i];
}
[[max_total_threads_per_threadgroup(64)]]
kernel void limited(device int* out, uint i [[thread_position_in_grid]]) { out[i] = i; }
kernel void complaining(device int* out, device c10::metal::ErrorMessages* errors, uint i [[thread_position_in_grid]]) {
  if (out[i] < 0) TORCH_REPORT_ERROR(errors, "index ", out[i], " is negative");
}
kernel void fast_sum(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  threadgroup float t[256];
  t[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i == 0) { float s = 0; for (int k = 0; k < 256; k++) s += t[k]; out[0] = s; }
}
"""


@pytest.fixture(scope="module")
def library():
    return compile_shader(SOURCE)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_tensors_are_bound_at_their_storage_offset_without_a_copy(library, device: str):
    x, out = torch.arange(40.0, device=device), torch.zeros(40, device=device)
    library.scaled(out[8:], x[4:20:2], 0.5, 12)
    assert out.cpu().tolist() == [0.0] * 8 + [0.5 * value for value in range(4, 16)] + [0.0] * 20


def test_numbers_lists_and_casts_have_torchs_sizes(library):
    out = torch.zeros(8, dtype=torch.int32)
    casts = {2: "int32", 3: "int16", 7: "fp16", 8: "bf16"}
    library.sizes(out, -5, -6, -7, True, [1, 2, 1 << 33], (1.5, 2.5), 3.0, 9, threads=1, arg_casts=casts)
    assert out.tolist() == [-5, -6, -7, 1, 3, 4, 3, 9]


def test_bools_and_unsigned_numbers_keep_their_low_bytes(library):
    out = torch.zeros(8, dtype=torch.int32)
    casts = {2: "int32", 3: "int16", 7: "fp16", 8: "bf16"}
    library.sizes(out, True, 0xFFFFFFFF, 0xFFFF, False, [True, 2, 3], [1.5, 2], 3, 9.0, threads=1, arg_casts=casts)
    assert out.tolist() == [1, -1, -1, 0, 6, 3, 3, 9]


@pytest.mark.parametrize("check", ["off", "full"])
def test_a_list_of_tensors_is_their_addresses(check):
    text = """#include <metal_stdlib>
using namespace metal;
struct Inputs { array<device float*, 3> of; };
kernel void total(device float* out, constant Inputs& inputs, uint i [[thread_position_in_grid]]) {
  out[i] = inputs.of[0][i] + inputs.of[1][i];
  inputs.of[2][i] = i;
}"""
    library = compile_shader(text, check=check)
    x, y, out = torch.arange(12.0), torch.ones(4), torch.zeros(4)
    library.total(out, [x[8:], y, x])
    assert out.tolist() == [9, 10, 11, 12]
    assert x[:4].tolist() == [0, 1, 2, 3]
    if check == "full":
        with pytest.raises(CheckError, match="out_of_bounds") as error:
            library.total(out, [x[9:], y, x])
        assert error.value.reports[0].line == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)  # PyTorch rounds doubles on their way
@pytest.mark.parametrize("check", ["off", "full"])
def test_a_tensor_without_dimensions_is_its_value(check, dtype: torch.dtype):
    text = "kernel void k(device float* out, constant float& a, uint i [[thread_position_in_grid]]) { out[i] = a; }"
    out = torch.zeros(3)
    compile_shader(text, check=check).k(out, torch.arange(4, dtype=dtype)[2])
    assert out.tolist() == [2, 2, 2]


def test_a_complex_double_without_dimensions_is_two_floats():
    text = "kernel void k(device float2* out, constant float2& a, uint i [[thread_position_in_grid]]) { out[i] = a; }"
    out = torch.zeros(2, dtype=torch.complex64)
    compile_shader(text).k(out, torch.tensor(1 + 2j, dtype=torch.complex128))
    assert out.tolist() == [1 + 2j, 1 + 2j]


def test_one_cast_is_for_all_numbers(library):
    out = torch.zeros(8, dtype=torch.int32)
    library.sizes(out, 1, 2, 3, 1, [4, 5, 6], [7, 8], 1, 1, threads=1, arg_casts="int32")
    assert out[1].item() == 2


def test_without_threads_there_is_one_for_each_element(library):
    x, out = torch.ones(3000), torch.zeros(3000)
    library.scaled(out, x, 2.0, 3000)
    assert out.sum().item() == 6000


def test_uneven_grids_have_smaller_last_groups(library):
    out = torch.zeros(5 * 7, 10, dtype=torch.int32)
    library.shape(out, threads=[5, 7], group_size=[4, 2])
    corner, first = out[-1].tolist(), out[0].tolist()
    assert first == [4, 2, 5, 7, 2, 4, 0, 0, 0, 0]
    assert corner == [1, 1, 5, 7, 2, 4, 1, 3, 0, 0]
    assert out.view(7, 5, 10)[1, 3].tolist()[8:] == [7, 7]


def test_the_default_group_is_as_large_as_the_kernel_allows(library):
    out = torch.zeros(100, dtype=torch.int32)
    library.limited(out)
    assert out.tolist() == list(range(100))
    assert library.limited.max_threads_per_threadgroup == 64
    assert library.scaled.max_threads_per_threadgroup == 1024
    assert library.scaled.thread_execution_width == 32


def test_a_grid_of_one_dimension_has_no_larger_group_than_itself():
    text = """kernel void k(device uint* out, uint3 a [[threads_per_threadgroup]],
        uint3 b [[dispatch_threads_per_threadgroup]]) { out[0] = a.x; out[1] = b.x; out[2] = b.y; }"""
    kernel, out = compile_shader(text).k, torch.zeros(5, dtype=torch.int32)
    kernel(out)
    assert out.tolist()[:3] == [5, 5, 1]
    kernel(out, threads=(5, 1))
    assert out.tolist()[:3] == [5, 1024, 1]


def test_errors_are_of_the_kinds_that_pytorch_raises(library):
    with pytest.raises(SyntaxError, match=r"line 2: .*nothing"):
        compile_shader("#include <metal_stdlib>\nkernel void k(device float* out) { out[0] = nothing; }")
    with pytest.raises(RuntimeError, match="Failed to create function state object for: nothing"):
        _ = library.nothing
    with pytest.raises(ValueError, match="Threadgroup size exceeds 1024 limit"):
        library.scaled(torch.zeros(4), torch.zeros(4), 1.0, 4, group_size=1029)


def test_threadgroup_memory_is_known_before_a_launch():
    source = """#include <metal_stdlib>
kernel void plain(device float* out) { threadgroup float a[3]; threadgroup uchar b; a[0] = b; }
template <typename T, int N> kernel void sized(device T* out) { threadgroup T a[N], b[2][N]; a[0] = b[0][0]; }
template [[host_name("small")]] kernel void sized<half, 16>(device half*);
template [[host_name("large")]] kernel void sized<float, 32>(device float*);
kernel void none(device float* out) {}"""
    sizes = {"plain": 32, "small": 96, "large": 384, "none": 0}
    for text in (source, source + "\n"):  # a second module with the same names has sizes of its own
        library = compile_shader(text)
        assert {name: library[name].static_thread_group_memory_length for name in library} == sizes


def test_counters_are_of_the_last_launch(library):
    out = torch.zeros(1)
    library.fast_sum(out, torch.ones(256), threads=256, group_size=256)
    assert out.item() == 256
    assert library.fast_sum.static_thread_group_memory_length == 1024
    counters = library.fast_sum.counters
    assert (counters["barriers"], counters["threadgroup_bytes"], counters["threads"]) == (1, 1024, 256)
    library.fast_sum(out, torch.ones(256), threads=256, group_size=256)
    assert library.fast_sum.counters["barriers"] == 1  # of the last launch, not of all


def test_a_grid_without_threads_does_nothing(library):
    library.scaled(torch.zeros(0), torch.zeros(0), 1.0, 0)


def test_error_messages_of_a_kernel_are_raised(library):
    good, bad = torch.ones(4, dtype=torch.int32), torch.tensor([1, -3, 1, 1], dtype=torch.int32)
    library.complaining(good, error_buf_idx=1)
    with pytest.raises(ShaderAssertionError, match="index -3 is negative"):
        library.complaining(bad, error_buf_idx=1)
    library.complaining(good, error_buf_idx=1)


WRONG = {
    "a missing buffer": (lambda k: k.scaled(torch.zeros(4), torch.zeros(4), 1.0), "buffer 3"),
    "None for a buffer": (lambda k: k.scaled(torch.zeros(4), None, 1.0, 4), "buffer 1"),
    "too large a group": (lambda k: k.limited(torch.zeros(4), threads=128, group_size=128), "1 to 64"),
    "an empty group": (lambda k: k.limited(torch.zeros(4), threads=4, group_size=0), "1 to 64"),
    "dimensions that differ": (lambda k: k.limited(torch.zeros(4), threads=[4, 1], group_size=[4]), "dimensions"),
    "four dimensions": (lambda k: k.limited(torch.zeros(4), threads=[1, 1, 1, 1]), "one to three"),
    "a string": (lambda k: k.scaled(torch.zeros(4), "x", 1.0, 4), "argument 1"),
    "an empty list": (lambda k: k.scaled(torch.zeros(4), [], 1.0, 4), "argument 1"),
    "an unknown cast": (lambda k: k.scaled(torch.zeros(4), torch.zeros(4), 1.0, 4, arg_casts="fp8"), "fp8"),
    "a number that does not fit": (
        lambda k: k.scaled(torch.zeros(4), 1 << 40, 1.0, 4, arg_casts={1: "int32"}),
        "int32",
    ),
    "a cast that torch does not know": (
        lambda k: k.scaled(torch.zeros(4), torch.zeros(4), 1.0, 4, arg_casts={3: "int64"}),
        "Unsupported cast instruction",
    ),
    "casts in a list": (lambda k: k.scaled(torch.zeros(4), 1, 1.0, 4, arg_casts=["int32"]), "arg_casts"),
    "a list that begins with an int": (lambda k: k.scaled(torch.zeros(4), [1, 0.5], 1.0, 4), "begins with an int"),
    "a number of numpy's": (lambda k: k.scaled(torch.zeros(4), numpy.int32(3), 1.0, 4), r"numpy\.int32"),
    "an int beyond 64 bits": (lambda k: k.scaled(torch.zeros(4), 1 << 80, 1.0, 4), "int64"),
    "no tensor and no threads": (lambda k: k.scaled(1, 2, 1.0, 4), "threads"),
    "too many arguments": (lambda k: k.limited(*[torch.zeros(4)] * 32), "31"),
}


@pytest.mark.parametrize("name", WRONG)
def test_calls_that_metal_does_not_allow_are_refused(library, name: str):
    call, message = WRONG[name]
    with pytest.raises(ShaderLaunchError, match=message):
        call(library)


def test_an_unknown_kernel_is_named(library):
    with pytest.raises(AttributeError, match="no kernel 'nothing'"):
        _ = library.nothing
    assert "scaled" in dir(library)
    assert len(library) == 6


def test_results_are_the_same_under_every_schedule():
    x = torch.randn(256)
    results = []
    for order in ("forward", "reverse", "random:3", "random:4"):
        out = torch.zeros(1)
        compile_shader(SOURCE, order=order).fast_sum(out, x, threads=256, group_size=256)
        results.append(out.item())
    assert len(set(results)) == 1


@pytest.mark.parametrize("order", ["sideways", "random:x"])
def test_an_unknown_order_is_refused(order: str):
    with pytest.raises(ShaderLaunchError, match="order"):
        compile_shader(SOURCE, order=order)

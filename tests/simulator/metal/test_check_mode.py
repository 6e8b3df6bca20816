"""Check mode: each seeded fault is found, with its kind, line, threads and place; correct kernels are left alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import inductor_mps_attention
from inductor_mps_attention.simulator import CheckError
from inductor_mps_attention.simulator.metal import ShaderCompileError, ShaderLaunchError, compile_shader

from .correct_kernels import CORRECT
from .faulty_kernels import BARRIER, BARRIERS, DEVICE_RACES, FAULTS, OUT_OF_BOUNDS, THREADGROUP_RACES, Fault

PACKAGE = Path(inductor_mps_attention.__file__).parent
RACES = THREADGROUP_RACES | DEVICE_RACES
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def launch(fault: Fault, order: str = "forward"):
    kernel = compile_shader(fault.source, check="full", order=order).k
    out = torch.zeros(128 * fault.groups)
    arguments = [out, torch.arange(128.0), torch.ones(16), torch.zeros(1, dtype=torch.int32)]
    kernel(*arguments, threads=128 * fault.groups, group_size=128)
    return kernel, out


def faults_of(fault: Fault, order: str = "forward"):
    with pytest.raises(CheckError) as caught:
        launch(fault, order)
    return caught.value.reports


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_with_its_kind_and_line(name: str):
    fault = FAULTS[name]
    reports = faults_of(fault)
    shown = "\n".join(map(str, reports))
    assert {(r.kind, r.line) for r in reports} & {(kind, line) for kind in fault.kinds for line in fault.lines}, shown
    assert {report.kind for report in reports} <= fault.kinds | {"uninitialised"}, shown
    assert all(report.kernel == "k" and "kernel k: " in report.message and report.line for report in reports), shown


def test_the_table_of_faults_is_not_cut_down():
    assert len(FAULTS) >= 60
    assert len(CORRECT) >= 25


@pytest.mark.parametrize("name", RACES)
def test_a_race_names_both_threads_both_lines_and_the_place(name: str):
    fault = RACES[name]
    report = next(report for report in faults_of(fault) if report.kind in fault.kinds and report.line in fault.lines)
    if report.kind == "race":
        assert len(set(report.threads)) == 2
        assert report.other_line
    assert all(f"thread {thread} of threadgroup {group}" in report.message for group, thread in report.threads)
    assert report.place
    assert f"{report.place} + {report.offset}" in report.message.replace("threadgroup array ", "").replace("'", "")


@pytest.mark.parametrize("name", [name for name in BARRIERS if "product by" not in name])
def test_a_barrier_names_a_thread_that_is_there_and_one_that_is_not(name: str):
    report = next(report for report in faults_of(BARRIERS[name]) if report.kind in BARRIERS[name].kinds)
    assert len(set(report.threads)) == 2
    assert all(f"thread {thread}" in report.message for _, thread in report.threads)


def test_the_place_of_a_fault_is_exact():
    reports = faults_of(FAULTS["one thread writes what all threads read"])
    assert [(r.place, r.offset, r.threads[0]) for r in reports] == [("t", 0, (0, 70))]
    reports = faults_of(FAULTS["a write past a buffer"])
    assert [(r.place, r.threads) for r in reports] == [("buffer(0)", ((0, 127),))]
    assert "0 bytes past the end of buffer(0)" in reports[0].message


@pytest.mark.parametrize("order", ["reverse", "random:1", "random:2"])
def test_a_fault_is_found_whatever_the_schedule(order: str):
    for name in (
        "no barrier between read and the next write",
        "two threadgroups write one element",
        "half of an array",
    ):
        assert faults_of(FAULTS[name], order), name


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_kernel_is_left_alone(name: str):
    for order in ("forward", "reverse"):
        kernel, _ = launch(Fault(CORRECT[name], frozenset(), groups=2), order)
        assert kernel.notes == (), order


# What is no fault and worth a note.
# ---------------------------------------------------------------------------------------------------------------------


def notes_of(statements: str):
    kernel, out = launch(Fault(statements, frozenset()))
    return {note.kind for note in kernel.notes}, out


def test_the_same_value_stored_by_all_threads_is_a_note():
    kinds, out = notes_of("out[0] = 7.0f;")
    assert (kinds, out[0].item()) == ({"same_value_write"}, 7)


def test_a_reduction_over_a_part_of_the_lanes_is_defined_and_a_note():
    """Metal reduces over the active lanes; that others run elsewhere may still surprise the author."""
    kinds, out = notes_of(
        "float s = 0; if (lane < 16) s = simd_sum(1.0f); simdgroup_barrier(mem_flags::mem_device); out[i] = s;"
    )
    assert (kinds, out[:17].tolist()) == ({"divergent_collective"}, [16.0] * 16 + [0.0])


def test_a_value_of_a_lane_that_takes_no_part_is_zero_and_a_note():
    """It is undefined in Metal, and zero on Apple's GPUs as c10/metal/reduction_utils.h says, which relies on it."""
    kinds, out = notes_of("if (lane >= 16) return; out[i] = simd_shuffle_down(x[i], 8);")
    assert kinds == {"inactive_lane"}
    assert out[:8].tolist() == [8.0, 9, 10, 11, 12, 13, 14, 15]
    assert not out[8:16].any()


# Limits
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["off", "full"])
def test_threadgroup_memory_over_32_kib_is_refused_before_the_first_launch(check: str):
    source = (
        HEAD + "kernel void k(device float* out, uint i [[thread_position_in_grid]]) {\n threadgroup float few[2];\n"
    )
    source += " threadgroup float big[8191];\n big[i] = few[i & 1] = 0; out[i] = big[i]; }\n"
    library = compile_shader(source, check=check)
    with pytest.raises(
        CheckError, match=r"\(32784\) exceeds the maximum threadgroup memory allowed \(32768\)"
    ) as caught:
        library.k  # noqa: B018
    assert [(report.kind, report.line) for report in caught.value.reports] == [("threadgroup_memory", 5)]
    compile_shader(source.replace("8191", "8188"), check=check).k  # noqa: B018


def test_arrays_sized_at_the_launch_count_too():
    source = HEAD + "kernel void k(device float* out, threadgroup float* t [[threadgroup(0)]]) {\n"
    source += "threadgroup float own[4096]; own[0] = t[0] = 1; out[0] = own[0] + t[0]; }"
    kernel = compile_shader(source).k
    kernel(torch.zeros(1), threads=1, group_size=1, threadgroup_bytes={0: 16384})
    with pytest.raises(ShaderLaunchError, match="32784"):
        kernel(torch.zeros(1), threads=1, group_size=1, threadgroup_bytes={0: 16385})


def test_a_template_instantiation_has_its_own_threadgroup_memory():
    source = HEAD + "template <int N> kernel void k(device float* out) {\n threadgroup float t[N];\n t[0] = 1;"
    source += ' out[0] = t[0]; }\ntemplate [[host_name("small")]] kernel void k<16>(device float*);\n'
    source += 'template [[host_name("large")]] kernel void k<9000>(device float*);\n'
    library = compile_shader(source)
    library.small(torch.zeros(1), threads=1, group_size=1)
    with pytest.raises(CheckError) as caught:
        library["large"]
    assert [(report.kernel, report.line) for report in caught.value.reports] == [("large", 4)]


def test_more_than_31_buffers_are_refused():
    parameters = ", ".join(f"device float* b{index}" for index in range(32))
    with pytest.raises(ShaderCompileError, match="buffer index 31 of 'device float\\* b31'") as caught:
        compile_shader(f"{HEAD}kernel void k({parameters}) {{ b0[0] = 1; }}")
    assert caught.value.line == 3
    with pytest.raises(ShaderCompileError, match="0 to 30"):
        compile_shader(f"{HEAD}kernel void k(device float* out [[buffer(31)]]) {{ out[0] = 1; }}")
    kernel = compile_shader(f"{HEAD}kernel void k(device float* out) {{ out[0] = 1; }}", check="full").k
    with pytest.raises(ShaderLaunchError, match="32 arguments"):
        kernel(*[torch.zeros(1)] * 32, threads=1, group_size=1)


def test_more_than_1024_threads_are_refused():
    kernel = compile_shader(f"{HEAD}kernel void k(device float* out) {{ out[0] = 1; }}", check="full").k
    for threads, group_size in ((2048, 1025), ((64, 64), (32, 33)), ((9, 9, 99), (8, 8, 17))):
        with pytest.raises(ShaderLaunchError, match="this kernel takes 1 to 1024"):
            kernel(torch.zeros(1), threads=threads, group_size=group_size)
    small = compile_shader(
        f"{HEAD}[[max_total_threads_per_threadgroup(64)]] kernel void k(device float* out) {{ out[0] = 1; }}"
    ).k
    with pytest.raises(ShaderLaunchError, match="1 to 64"):
        small(torch.zeros(1), threads=128, group_size=128)


# Memory
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in OUT_OF_BOUNDS if "megabytes" in name or "far" in name])
def test_a_wild_write_harms_nothing(name: str):
    """It corrupted the heap and ended the process: the threadgroup ends instead, and the process goes on."""
    neighbours = [torch.full((4096,), 5.0) for _ in range(8)]
    for _ in range(3):
        assert {report.kind for report in faults_of(OUT_OF_BOUNDS[name])} == {"out_of_bounds"}
    assert all((neighbour == 5).all() for neighbour in neighbours)


def test_threadgroups_after_one_that_ended_early_still_run():
    fault = Fault("if (group == 0) out[i + 9000000] = 1;\n out[at] = 2;", frozenset(), groups=2)
    kernel = compile_shader(fault.source, check="full").k
    out = torch.zeros(256)
    with pytest.raises(CheckError):
        kernel(out, torch.zeros(128), torch.zeros(1), torch.zeros(1), threads=256, group_size=128)
    assert out.tolist() == [0.0] * 128 + [2.0] * 128


def test_an_empty_view_has_no_memory():
    """Its data_ptr() is 0, which made the size of its copy a whole address space."""
    source = HEAD + "kernel void k(device float* a, device const float* b, uint i [[thread_position_in_grid]])"
    kernel = compile_shader(source + " { if (i > 2) a[i] = b[i]; else a[i] = 1; }", check="full").k
    whole = torch.zeros(8)
    for empty in (whole[8:], whole[3:3], torch.zeros(0)):
        kernel(whole, empty, threads=2, group_size=2)
    assert whole.tolist() == [1.0] * 2 + [0.0] * 6
    with pytest.raises(CheckError) as caught:
        kernel(whole, whole[8:], threads=4, group_size=4)
    assert [(r.kind, r.place) for r in caught.value.reports] == [("out_of_bounds", "buffer(1)")]
    with pytest.raises(CheckError):
        kernel(whole[:0], whole, threads=1, group_size=1)


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


def test_results_of_a_faulty_launch_are_copied_back():
    reports = FAULTS["a write past a buffer"]
    kernel = compile_shader(reports.source, check="full").k
    out = torch.zeros(128)
    with pytest.raises(CheckError):
        kernel(out, torch.full((128,), 3.0), torch.zeros(1), torch.zeros(1), threads=128, group_size=128)
    assert out[1:].tolist() == [3.0] * 127


def test_a_report_counts_for_each_place_once():
    """A fault in every thread of every threadgroup is one report, and others still find room."""
    statements = "threadgroup float t[128];\n float a = t[i];\n float b = t[i ^ 1];\n out[i + 1] = a + b;"
    reports = faults_of(Fault(statements, frozenset()))
    assert len(reports) <= 3
    assert {report.kind for report in reports} == {"uninitialised", "out_of_bounds"}
    assert any(re.search(r"\(\d+ more like this\)", report.message) for report in reports)


def test_launches_after_a_faulty_one_start_clean():
    for _ in range(2):
        assert faults_of(FAULTS["a sum without atomics"])
        launch(Fault(f"threadgroup float t[128]; t[i] = 1; {BARRIER} out[i] = t[i];", frozenset()))


def test_a_shim_that_another_copy_of_the_package_precompiled_gives_the_same_lines(tmp_path, monkeypatch):
    """Two environments share one cache: the shim's paths in debug information are those of who precompiled it."""
    copy = tmp_path / "copy"
    shutil.copytree(PACKAGE, copy / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    fault = FAULTS["an atomic past a buffer"]
    program = (
        "import torch\nfrom inductor_mps_attention.simulator import CheckError, metal\n"
        f"kernel = metal.compile_shader({fault.source!r}, check='full').k\n"
        "numbers = torch.zeros(128, dtype=torch.int32)\n"
        "try:\n    kernel(numbers, numbers, numbers, numbers[:1].clone(), threads=128)\n"
        "except CheckError as error:\n    print(metal.__file__, {report.line for report in error.reports})\n"
    )
    monkeypatch.setenv("MPS_ATTENTION_SIMULATOR_CACHE", str(tmp_path / "cache"))

    def lines_of(package: Path) -> str:
        monkeypatch.setenv("PYTHONPATH", str(package.parent))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
        place, lines = done.stdout.split(maxsplit=1)
        assert Path(place).is_relative_to(package)
        return lines

    assert lines_of(copy / PACKAGE.name) == lines_of(PACKAGE) == f"{set(fault.lines)}\n"

"""g++ and clang give the same results, the same reports and the same counters; what is missing is said."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inductor_mps_attention import simulator
from inductor_mps_attention.simulator import SimulatorError, settings
from inductor_mps_attention.simulator.metal import reports

from .faulty_kernels import FAULTS

# Kinds and lines of one fault of each family, and the results of two kernels, as JSON.
PROGRAM = """
import json, sys
import torch
sys.path.insert(0, sys.argv[1])
from faulty_kernels import FAULTS
from inductor_mps_attention.simulator import CheckError, compile_shader

def found(fault):
    out = torch.zeros(128 * fault.groups)
    arguments = [out, torch.arange(128.0), torch.ones(16), torch.zeros(1, dtype=torch.int32)]
    try:
        compile_shader(fault.source, check="full").k(*arguments, threads=out.numel(), group_size=128)
    except CheckError as error:
        return sorted({(r.kind, r.line, r.place) for r in error.reports})
    return []

SOURCE = '''#include <metal_stdlib>
using namespace metal;
kernel void k(device float* out, device const half* x, device atomic_uint* sum, uint i [[thread_position_in_grid]],
              uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup float t[128];
  float4 v = fma(float4(x[i]), 1.25f, float4(0.1f, 0.2f, 0.3f, 0.4f));
  t[tid] = exp2(dot(v, v)) * rsqrt(v.x + 1.0f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_half8x8 a; simdgroup_load(a, x + sg * 16, 8);
  simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8>(0.0f);
  simdgroup_multiply_accumulate(m, a, a, m);
  atomic_fetch_add_explicit(sum, uint(t[tid] * 100), memory_order_relaxed);
  simdgroup_bfloat8x8 b; simdgroup_load(b, (device const bfloat*)x + sg * 16, 8);
  simdgroup_multiply_accumulate(m, b, b, m);
  out[i] = t[127 - tid] + simd_sum(m.thread_elements()[0]) + simd_shuffle_xor(t[tid], 5) + float(as_type<ushort>(x[i]));
}
'''
answer = {name: found(FAULTS[name]) for name in json.loads(sys.argv[2])}
for check in ("off", "full"):
    out, x = torch.zeros(256), (torch.arange(256) / 256).half()
    kernel = compile_shader(SOURCE, check=check).k
    total = torch.zeros(1, dtype=torch.int32)
    kernel(out, x, total, threads=256, group_size=128)
    counters = {name: value for name, value in kernel.counters.items() if not name.endswith(("_read", "_written"))}
    answer[check] = [out.view(torch.int32).tolist() + total.tolist(), counters]
print(json.dumps(answer))
"""
NAMES = [
    "no barrier between read and the next write",
    "simdgroup_store over what another simdgroup reads",
    "two threadgroups write one element",
    "a return before a barrier",
    "a matrix product by a part of the simdgroup",
    "a write megabytes past a buffer",
    "simdgroup_load past a buffer",
    "a threadgroup array too short",
    "a member of a struct",
    "one byte of a word",
    "a counter that is only added to",
    "a write to a const buffer",
]


def answers(compiler: str) -> dict[str, object]:
    # Zig builds its C++ library once; it is kept where the simulator keeps what it builds.
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(settings.cache_directory() / "zig")} | os.environ | {"CXX": compiler}
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), json.dumps(NAMES)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def clang() -> str | None:
    """A clang++ that has _Float16 on x86-64: version 15 or later."""
    for name in ("clang++", *(f"clang++-{version}" for version in range(22, 14, -1))):
        path = shutil.which(name)
        words = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout if path else ""
        version = re.search(r"clang version (\d+)", words)
        if path and version and int(version[1]) >= 15:
            return path
    return None


def zig() -> str | None:
    """A script that is the clang of the wheel `ziglang`. Its path stays the same, as it names what is built."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    script = settings.cache_directory() / f"zig-{hashlib.sha256(sys.executable.encode()).hexdigest()[:8]}" / "clang++"
    script.parent.mkdir(parents=True, exist_ok=True)
    unfinished = script.with_suffix(f".{os.getpid()}")
    unfinished.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang c++ "$@"\n')
    unfinished.chmod(0o755)
    unfinished.replace(script)
    return str(script)


SECOND_COMPILER = clang() or zig()


# The wheel is not among the tests' requirements: on a new machine it first builds a C++ library, two minutes of a core.
@pytest.mark.skipif(
    SECOND_COMPILER is None, reason="needs clang 15 beside g++: apt install clang-16 or pip install ziglang"
)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ beside clang: apt install g++")
def test_gcc_and_clang_agree():
    """Results bit for bit, reports by kind, line and place, and all counters that do not depend on the optimiser."""
    of_gcc, of_clang = answers("g++"), answers(SECOND_COMPILER or "")
    for name in NAMES:
        lines = FAULTS[name].lines
        assert of_gcc[name], name
        assert {tuple(found) for found in of_gcc[name] if found[1] in lines} == {
            tuple(found) for found in of_clang[name] if found[1] in lines
        }, name
    assert of_gcc["off"] == of_clang["off"]
    assert of_gcc["full"] == of_clang["full"]
    assert of_gcc["off"][0] == of_gcc["full"][0]


def test_no_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SimulatorError, match="apt install g\\+\\+"):
        simulator.compile_shader("kernel void k(device int* out) { out[0] = 1; }")


def test_no_addr2line_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SimulatorError, match="apt install binutils"):
        reports._lines(Path("/nowhere/module.so"), frozenset({1}))

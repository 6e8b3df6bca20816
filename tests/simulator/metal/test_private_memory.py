"""Private variables and arrays: indices outside them are reported, not executed; what nobody wrote shows where it is
stored; and no kernel, however wrong, ends the process, checked or not.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from inductor_mps_attention.simulator import CheckError
from inductor_mps_attention.simulator.metal import compile_shader

# The kernel is called with n = 3. The faulty line is the third of the statements.
PROLOGUE = """#include <metal_stdlib>
using namespace metal;
constant float table[2][3] = {{1, 2, 3}, {4, 5, 6}};
template <typename T, int N> struct Tile { T values[N]; thread T& at(int i) thread { return values[i]; } };
static void fill(thread float* x, int n) { for (int k = 0; k < n; k++) x[k] = k; }
__attribute__((noinline)) void fill_apart(thread float* x, int n) { fill(x, n); }
kernel void k(device float* out, constant int& n, uint i [[thread_index_in_threadgroup]]) {
"""
LINE = PROLOGUE.count("\n") + 3

# The statements, and what the report says of the index.
OUTSIDE = {
    "a loop from a negative index": (
        "float a[4] = {0};\nfor (int k = n - 5; k < 4; k++)\na[k] = k;\nout[i] = a[0];",
        -2,
    ),
    "one index past the end": ("float a[3] = {1, 2, 3};\nfor (int k = 0; k <= n; k++)\na[k] = k;\nout[i] = a[1];", 3),
    "a read": ("float a[3] = {1, 2, 3};\n\nout[i] = a[i + n];", 3),
    "an index far away": ("float a[4] = {0};\n\na[n - 1000000] = 1; out[i] = a[n];", -999997),
    "an unsigned index below zero": ("float a[4] = {0};\n\na[uint(n) - 4u] = 1; out[i] = a[n];", 2**32 - 1),
    "a member of a struct": ("struct S { float v[4]; float last; }; S s = {};\n\ns.v[n + 1] = 7; out[i] = s.last;", 4),
    "an array that ends a struct": ("Tile<float, 4> t = {};\n\nt.values[n + 1] = 7; out[i] = t.values[0];", 4),
    "a vector": ("float4 v = 0;\n\nv[n + 1] = 7; out[i] = v.x;", 4),
    "a packed vector": ("packed_float3 v = packed_float3(0);\n\nv[n] = 7; out[i] = v.x;", 3),
    "a matrix": ("float3x3 m = float3x3(1);\n\nm[n] = float3(7); out[i] = m[0].x;", 3),
    "an array of the library": ("array<float, 3> a = {};\n\na[n] = 7; out[i] = a[0];", 3),
    "constant memory": ("\n\nout[i] = table[n - 1][0];", 2),
    "a row of constant memory": ("\n\nout[i] = table[0][n];", 3),
}

INSIDE = {
    "all elements": "float a[4]; for (int k = 0; k < 4; k++) a[k] = k; out[i] = a[n];",
    "the end as a pointer": "float a[4] = {0, 1, 1, 1}, s = 0;"
    "for (thread float* p = a; p != &a[4]; ++p) s += *p; out[i] = s;",
    "a helper": "float a[4] = {0}; fill(a, 4); out[i] = a[n];",
    "another type": "uchar b[4] = {0, 0, 64, 64}; out[i] = *(thread float*)b;",
    "elements of a vector by a pointer": "float4 v = float4(0, 1, 2, 3); out[i] = ((thread float*)&v)[n];",
    "elements of a matrix": "float4x4 m = float4x4(3); out[i] = m[n][n];",
    "a member function": "Tile<float, 4> t; for (int k = 0; k < 4; k++) t.at(k) = k; out[i] = t.at(n);",
}

# Statements that read private memory which nobody wrote.
UNWRITTEN = {
    "a sum that starts nowhere": "float s;\nfor (int k = 0; k < n; k++) s += k;\nout[i] = s;",
    "an array": "float a[4];\nfor (int k = 0; k < n; k++) a[k] += k;\nout[i] = a[n - 1];",
    "one branch": "float v;\nif (n == 4) v = i * 2.5f;\nout[i] = v;",
    "an element of a vector": "float4 v;\nv.x = i;\nout[i] = v.w;",
    "a matrix": "simdgroup_float8x8 a(1), c;\n\nsimdgroup_multiply_accumulate(c, a, a, c);\n"
    "simdgroup_store(c, out, 8);",
    "a matrix of half": "simdgroup_half8x8 a(1), c;\n\nsimdgroup_multiply_accumulate(c, a, a, c);\n"
    "out[i] = c.thread_elements()[0];",
    "a matrix of bfloat": "simdgroup_bfloat8x8 a(bfloat(1)), c;\n\nsimdgroup_multiply_accumulate(c, a, a, c);\n"
    "out[i] = float(c.thread_elements()[0]);",
}


def launch(statements: str, check: str) -> torch.Tensor:
    out = torch.zeros(64)
    compile_shader(f"{PROLOGUE}{statements}\n}}\n", check=check).k(out, 3, threads=32, group_size=32)
    return out


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_outside_is_reported_with_its_line_and_value(name: str):  # it overwrote the thread's stack
    statements, index = OUTSIDE[name]
    with pytest.raises(CheckError) as caught:
        launch(statements, "full")
    (report, *others) = caught.value.reports
    assert (report.kind, report.line, others) == ("out_of_bounds", LINE, []), caught.value
    assert f"index {index} of" in report.message
    assert report.threads[0][0] == 0


@pytest.mark.parametrize("name", INSIDE)
def test_indices_inside_are_no_faults(name: str):
    assert launch(INSIDE[name], "full")[:32].eq(3).all()


LEAVING = {
    "an element in place": (
        "float a[3] = {1, 2, 3}; for (int k = 0; k <= n; k++) a[k] += k; out[i] = a[1];",
        "leads outside of its array",
    ),
    "an inline helper": ("float a[4] = {0}; fill(a, n + 5); out[i] = a[0];", "leads outside of its array"),
    "a call": ("float a[4] = {0}; fill_apart(a, n + 5); out[i] = a[0];", "past the end of a private array"),
}


@pytest.mark.parametrize("name", LEAVING)
def test_pointers_that_leave_a_private_array_are_found(name: str):
    statements, words = LEAVING[name]
    with pytest.raises(CheckError) as caught:
        launch(statements, "full")
    assert {report.kind for report in caught.value.reports} == {"out_of_bounds"}
    assert words in str(caught.value)


@pytest.mark.parametrize("name", UNWRITTEN)
def test_private_memory_that_nobody_wrote_is_reported(name: str):
    with pytest.raises(CheckError) as caught:
        launch(UNWRITTEN[name], "full")
    assert {(report.kind, report.line) for report in caught.value.reports} >= {("uninitialised", LINE)}, caught.value


@pytest.mark.parametrize("check", ["off", "full"])
def test_integer_division_by_zero_is_no_exception(check: str):  # the processor's ended the process
    statements = """int zero = n - 3, least = -2147483647 - 1;
    out[0] = 7 / zero; out[1] = 7 % zero; out[2] = 7u / uint(zero); out[3] = (long(1) << 40) / zero;
    out[4] = (long(1) << 40) % long(zero); out[5] = ushort(n) / ushort(zero); out[6] = char(n) % char(zero);
    out[7] = least / (zero - 1); out[8] = least % (zero - 1); int4 v = int4(1, 2, 3, 4) / zero; out[9] = v.w;
    out[10] = n / (zero + 2);"""
    out = torch.zeros(64)
    text = f"{PROLOGUE}{statements}\n}}\n".replace("thread_index_in_threadgroup", "thread_position_in_grid")
    kernel = compile_shader(text, check=check).k
    kernel(out, 3, threads=1, group_size=1)
    assert out[:11].tolist() == [0, 7, 0, 0, 2**40, 0, 3, -(2**31), 0, 0, 1]
    assert {note.kind for note in kernel.notes} == ({"division_by_zero"} if check == "full" else set())


HOSTILE = {
    "a wild read": "out[i] = out[long(n) << 38];",
    "a wild write": "out[long(n) << 38] = 1;",
    "a wild write of a threadgroup": "threadgroup_barrier(mem_flags::mem_device); out[long(n) << 38] = 1;",
    "a smashed stack": "threadgroup_barrier(mem_flags::mem_device); float a[4]; fill_apart(a, 999 + n); out[i] = a[n];",
    "a deep stack": "float a[49999]; fill_apart(a, 9900 + n); threadgroup_barrier(mem_flags::mem_none); out[i] = a[n];",
}
PROGRAM = """
import json, sys, torch
from inductor_mps_attention.simulator import CheckError, compile_shader

def launch(statements, check):
    kernel = compile_shader(prologue + statements + "}", check=check).k
    kernel(out, 3, threads=64, group_size=32)

prologue, kernels = json.loads(sys.argv[1])
out = torch.zeros(64)
for check in ("off", "full"):
    for name, statements in kernels.items():
        try:
            launch(statements, check)
            print(check, name, "silent")
        except CheckError as error:
            print(check, name, *sorted({report.kind for report in error.reports}))
launch("out[i] = 1;", "off")
print(out.sum().item())
"""


def test_no_kernel_ends_the_process():
    command = [sys.executable, "-c", PROGRAM, json.dumps([PROLOGUE, HOSTILE])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *lines, last = done.stdout.splitlines()
    assert last == "32.0"  # the engine works on
    assert len(lines) == 10
    assert not [line for line in lines if "silent" in line]
    assert [line for line in lines if line.endswith("stack_overflow")] == [
        "off a deep stack stack_overflow",
        "full a deep stack stack_overflow",
    ]


def test_exceptions_outside_kernels_go_where_they_went():
    program = (
        "import ctypes, faulthandler, torch\n"
        "from inductor_mps_attention.simulator import compile_shader\n"
        "faulthandler.enable()\n"
        "compile_shader('kernel void k(device float* o) { o[0] = 1; }').k(torch.zeros(1), threads=1)\n"
        "ctypes.string_at(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -11
    assert "Segmentation fault" in done.stderr

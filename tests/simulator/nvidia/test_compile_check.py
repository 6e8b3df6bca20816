"""The NVIDIA engine's compiler, which needs no GPU: it takes what the CPU engine takes, and says where it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductor_mps_attention.simulator import nvidia
from inductor_mps_attention.simulator.metal import ShaderCompileError
from inductor_mps_attention.simulator.nvidia import arguments, compiler, nvrtc
from tests.simulator.metal.correct_kernels import CORRECT
from tests.simulator.metal.test_metal_language import HEADER, PROGRAMS

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*.metal"))
ALL_LANES = "simd_sum simd_product simd_max simd_min simd_prefix_inclusive_sum simd_prefix_exclusive_product quad_sum"


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "MPS_ATTENTION_SIMULATOR_CACHE", str(tmp_path)
    )  # else an earlier run's image would be the answer


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_kept_text_compiles(path: Path):  # a text that only the CPU engine takes leans on that compiler
    assert nvidia.compile_check(path.read_text(), float32="fast") == (path.stem,)


@pytest.mark.parametrize(
    "choices", [{"poison": True, "jitter": 3}, {"pairing": True}, {"rezero": True}, {"float32": "exact"}], ids=str
)
def test_the_builds_that_look_for_faults_compile(choices: dict[str, object]):
    path = next(path for path in GOLDEN if "dq_bf16" in path.stem)
    assert nvidia.compile_check(path.read_text(), **choices) == (path.stem,)


def test_the_language_of_the_cpu_engine_compiles():
    source = HEADER
    for number, (before, statements, _) in enumerate(PROGRAMS.values()):
        source += f"namespace n{number} {{ {before}\nkernel void k{number}(device float* out,"
        source += f" uint i [[thread_index_in_threadgroup]])\n{{ {statements} }} }}\n"
    assert len(nvidia.compile_check(source)) == len(PROGRAMS)


def test_kernels_of_check_mode_compile():
    parameters = "device float* out, device const float* x, constant float* c, device atomic_uint* n,"
    positions = (
        "uint i [[thread_index_in_threadgroup]], uint at [[thread_position_in_grid]],"
        "uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],"
        "uint sg [[simdgroup_index_in_threadgroup]]"
    )
    source = HEADER
    for number, statements in enumerate(CORRECT.values()):
        source += f"kernel void k{number}({parameters} {positions}) {{ {statements} }}\n"
    assert len(nvidia.compile_check(source)) == len(CORRECT)


def test_lane_operations_take_scalars_and_vectors():
    calls = "".join(f"out[i] += {name}(v).x + {name}(float(i));" for name in ALL_LANES.split())
    calls += "out[i] += simd_shuffle_down(v, 3).y + float(simd_shuffle_xor(half(i), 5)) + quad_shuffle_up(v.x, 1);"
    calls += "out[i] += simd_any(i == 3) + simd_all(i < 9) + simd_is_first() + quad_all(true);"
    calls += "out[i] += simd_shuffle_and_fill_up(v.x, 9.0f, 2) + simd_broadcast_first(v).x + quad_broadcast(v, 1).x;"
    body = f"float2 v = float2(i, 1); {calls}"
    nvidia.compile_check(
        f"{HEADER} kernel void k(device float* out, uint i [[thread_index_in_simdgroup]]) {{ {body} }}"
    )


def test_an_error_has_the_line_of_the_metal_text():
    with pytest.raises(ShaderCompileError, match=r"line 5: .*missing_name") as caught:
        nvidia.compile_check(f"{HEADER}kernel void k(device float* out)\n{{ out[0] = missing_name; }}\n")
    assert caught.value.line == 5
    assert "-> " in str(caught.value)


def test_an_option_that_is_none_is_refused():
    with pytest.raises(ValueError, match="'exact' or 'fast'"):
        nvidia.compile_check("", float32="tf32")


def test_two_options_never_share_a_kept_image(tmp_path: Path):
    text = GOLDEN[0].read_text()
    for choices in ({}, {"float32": "fast"}, {"jitter": 1}, {"jitter": 2}, {"architecture": "80"}, {}):
        nvidia.compile_check(text, **choices)
    assert len(list((tmp_path / "nvidia").glob("*.image"))) == 5


def constants_hold(statements: str) -> None:
    """Compiles `statements` behind the shim; a static assertion that fails raises NvrtcError."""
    text = f'#include "cuda_shim.h"\nnamespace metal_text {{ {statements} }}'
    nvrtc.compile_cuda(text, compiler.headers(), compiler.Options().flags())


@pytest.mark.parametrize(("buffers", "inlined"), [(1, 0), (1, 1), (6, 0x30), (7, 0x71), (31, 0), (31, 0x7FFFFFFF)])
def test_python_lays_arguments_out_as_the_entry_reads_them(buffers: int, inlined: int):
    size = arguments.struct_bytes(buffers, inlined)
    constants_hold(f"static_assert(sizeof(msl_::Arguments<{buffers}, {inlined}u>) == {size});")


def test_the_lanes_that_kernels_see_are_a_permutation_that_commutes_with_xor():
    constants_hold(
        "constexpr bool right() { for (uint a = 0; a < 32; ++a) {"
        "  if (hardware_lane(apple_lane(a)) != a) return false;"
        "  if (metal::msl_detail::in_apple_order(1u << a) != 1u << apple_lane(a)) return false;"
        "  uint row = (a >> 2 & 4) | (a >> 1 & 3), column = (a >> 1 & 4) | (a << 1 & 2);"  # Apple's layout
        "  if (hardware_lane(a) != (row << 2 | column >> 1)) return false;"
        "  for (uint b = 0; b < 32; ++b) if (apple_lane(a ^ b) != (apple_lane(a) ^ apple_lane(b))) return false;"
        "} return true; } static_assert(right());"
    )


HALVES = {
    "0.0f": 0x0000,
    "-0.0f": 0x8000,
    "1.0f": 0x3C00,
    "65504.0f": 0x7BFF,
    "65519.9f": 0x7BFF,
    "65520.0f": 0x7C00,
    "1.00048828125f": 0x3C00,  # a tie, to even
    "1.00146484375f": 0x3C02,  # a tie, to even, upwards
    "6.103515625e-5f": 0x0400,
    "6.0975551605224609e-5f": 0x03FF,
    "5.9604644775390625e-8f": 0x0001,
    "2.98023223876953125e-8f": 0x0000,  # a tie between 0 and the least half
    "2.99e-8f": 0x0001,
    "8.94069671630859375e-8f": 0x0002,  # a tie between the least two
}


def test_half_constants_are_rounded_as_the_hardware_does():
    checks = "".join(f"static_assert(msl_rounded_to_half({value}) == {bits});" for value, bits in HALVES.items())
    exact = [value for value, bits in HALVES.items() if value in ("1.0f", "65504.0f", "6.103515625e-5f", "-0.0f")]
    back = "".join(f"static_assert(float(half({value})) == {value});" for value in exact)
    constants_hold(
        f"{checks} {back} static_assert(half(1.5f) * half(2) == 3.0f && numeric_max() == 65504.0f);".replace(
            "numeric_max()", "float(metal::numeric_limits<half>::max())"
        )
    )


def test_what_public_kernels_ask_of_apples_headers_compiles():
    calls = 'bfloat b = bfloat(__metal_exp(2.0f, 1)); half h = half(b); os_log_default.log_info("%d", 3);'
    calls += "out[i] = float(h) + simd_shuffle_and_fill_down(float(i), 1.0f, 2, 16) + __metal_simd_sum(1.0f);"
    nvidia.compile_check(
        f"{HEADER} kernel void k(device float* out, uint i [[thread_index_in_simdgroup]]) {{ {calls} }}"
    )


def test_a_literal_beside_a_bfloat_compiles():  # was looked for in a namespace of the CPU engine
    text = "kernel void pick(device bfloat* x, uint i [[thread_position_in_grid]]) { x[i] = i > 1 ? x[0] : 0; }"
    assert nvidia.compile_check(f"#include <metal_stdlib>\nusing namespace metal;\n{text}") == ("pick",)

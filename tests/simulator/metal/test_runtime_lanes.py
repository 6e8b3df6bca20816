"""Operations among the lanes of a simdgroup: what each lane gets, in full simdgroups, short ones and divergent code."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inductor_mps_attention.simulator.metal import compile_shader

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
LANES = 32

REDUCTIONS = {
    "simd_sum": lambda v: v.sum(),
    "simd_product": lambda v: v.prod(),
    "simd_max": lambda v: v.max(),
    "simd_min": lambda v: v.min(),
    "simd_and": np.bitwise_and.reduce,
    "simd_or": np.bitwise_or.reduce,
    "simd_xor": np.bitwise_xor.reduce,
}
# lane, argument -> the lane it reads
SHUFFLES = {
    "simd_shuffle": lambda lane, n: n,
    "simd_broadcast": lambda lane, n: n,
    "simd_shuffle_xor": lambda lane, n: lane ^ n,
    "simd_shuffle_down": lambda lane, n: lane + n,
    "simd_shuffle_up": lambda lane, n: lane - n,
    "simd_shuffle_rotate_down": lambda lane, n: (lane + n) % LANES,
    "simd_shuffle_rotate_up": lambda lane, n: (lane - n) % LANES,
    "quad_shuffle": lambda lane, n: lane // 4 * 4 + n % 4,
    "quad_broadcast": lambda lane, n: lane // 4 * 4 + n % 4,
    "quad_shuffle_xor": lambda lane, n: lane ^ n % 4,
    "quad_shuffle_down": lambda lane, n: lane + n if lane % 4 + n < 4 else -1,
    "quad_shuffle_up": lambda lane, n: lane - n if lane % 4 >= n else -1,
}


def _int_kernels() -> str:
    signature = "(device int* out, device const int* x, constant long& n, uint i [[thread_index_in_threadgroup]])"
    text = HEADER
    for name in [*REDUCTIONS, *(f"quad_{name[5:]}" for name in REDUCTIONS)]:
        text += f"kernel void k_{name}{signature} {{ out[i] = {name}(x[i]); }}\n"
    for name in SHUFFLES:
        text += f"kernel void k_{name}{signature} {{ out[i] = {name}(x[i], n); }}\n"
    return text


@pytest.fixture(scope="module")
def library():
    return compile_shader(_int_kernels())


def _run(library, name: str, threads: int = 64, argument: int = 0) -> tuple[list[int], np.ndarray]:
    x = torch.randint(-9, 9, (threads,), generator=torch.Generator().manual_seed(1)).int()
    out = torch.full((threads,), 12345, dtype=torch.int32)
    getattr(library, f"k_{name}")(out, x, argument, threads=threads, group_size=threads)
    return out.tolist(), x.numpy()


@pytest.mark.parametrize("width", [32, 4])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_cover_their_lanes(library, name: str, width: int):
    for threads in (64, 44):  # the last simdgroup may be short
        got, x = _run(library, name if width == LANES else f"quad_{name[5:]}", threads)
        expected = [int(REDUCTIONS[name](x[i // width * width : i // width * width + width])) for i in range(threads)]
        assert got == [(value + 2**31) % 2**32 - 2**31 for value in expected]


@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffles_read_the_right_lane(library, name: str):
    for argument in (0, 1, 3):
        got, x = _run(library, name, 64, argument)
        for i, value in enumerate(got):
            source = SHUFFLES[name](i % LANES, argument)
            first = i // LANES * LANES
            assert value == (x[first + source] if 0 <= source < LANES else 0), (i, argument)


def test_prefix_operations_votes_and_filling():
    library = compile_shader(
        HEADER
        + """kernel void k(device float* out, device const float* x, uint i [[thread_index_in_threadgroup]]) {
  const float v = x[i];
  out[i] = simd_prefix_inclusive_sum(v);
  out[i + 32] = simd_prefix_exclusive_sum(v);
  out[i + 64] = simd_prefix_inclusive_product(v);
  out[i + 96] = simd_prefix_exclusive_product(v);
  out[i + 128] = simd_shuffle_and_fill_down(v, -1.0f, 5);
  out[i + 160] = simd_shuffle_and_fill_up(v, -1.0f, 5);
  out[i + 192] = simd_broadcast_first(v);
  out[i + 224] = float(ulong(simd_vote::vote_t(simd_ballot(v > 1.0f))) & 0xffff);
  out[i + 256] = simd_any(v > 1.0f) + 2 * simd_all(v > 1.0f) + 4 * simd_all(v > -9.0f) + 8 * simd_is_first();
}
"""
    )
    x = 1 + torch.arange(32) % 3 / 4
    out = torch.zeros(9, 32)
    library.k(out, x, threads=32, group_size=32)
    values = x.numpy()
    np.testing.assert_allclose(out[0], np.cumsum(values))
    np.testing.assert_allclose(out[1], np.cumsum(values) - values)
    np.testing.assert_allclose(out[2], np.cumprod(values), rtol=1e-6)
    np.testing.assert_allclose(out[3], np.cumprod(values) / values, rtol=1e-6)
    assert out[4].tolist() == [*values[5:], *[-1.0] * 5]
    assert out[5].tolist() == [*[-1.0] * 5, *values[:-5]]
    assert out[6].tolist() == [values[0]] * 32
    assert out[7].tolist() == [float(sum(1 << i for i in range(16) if values[i] > 1))] * 32
    assert out[8].tolist() == [13.0, *[5.0] * 31]


def test_divergent_lanes_form_groups_of_their_own():
    """A part of the simdgroup sums, the other part shuffles; a third case is a trip count that differs by lane."""
    source = (
        HEADER
        + """kernel void k(device float* out, uint lane [[thread_index_in_simdgroup]],
              uint i [[thread_position_in_grid]]) {
  float v;
  if (lane % 2) {
    v = simd_sum(float(lane));
  } else {
    v = simd_shuffle_xor(float(lane), 2);
  }
  for (uint step = 0; step < lane / 8; step++) v += simd_sum(1.0f);
  out[i] = v + 1000.0f * simd_sum(1.0f);
}
"""
    )
    expected = [sum(range(1, 32, 2)) if lane % 2 else lane ^ 2 for lane in range(32)]
    for lane in range(32):
        expected[lane] += sum(32 - 8 * (step + 1) for step in range(lane // 8)) + 32000
    for order in ("forward", "reverse", "random:3"):
        library = compile_shader(source, order=order)
        out = torch.zeros(128)
        library.k(out, threads=128, group_size=64)
        assert out.tolist() == expected * 4
        assert library.k.counters["divergent"] > 0


def test_a_lane_that_takes_no_part_reads_as_zero():
    """PyTorch's simd_sum(long) shuffles in a branch and relies on it; NaN bits made cross entropy 10 % wrong."""
    library = compile_shader(
        HEADER + "kernel void k(device int* out, uint i [[thread_index_in_threadgroup]])"
        " { if (i < 4) out[i] = simd_shuffle_down(int(i) + 1, 2); }"
    )
    out = torch.zeros(4, dtype=torch.int32)
    library.k(out, threads=32, group_size=32)
    assert out.tolist() == [3, 4, 0, 0]


def test_values_of_all_widths_and_vectors():
    library = compile_shader(
        HEADER
        + """kernel void k(device float4* a, device half2* b, device ushort* c, device char* d,
              uint i [[thread_index_in_threadgroup]]) {
  a[i] = simd_sum(a[i]);
  b[i] = simd_shuffle_xor(b[i], 1);
  c[i] = simd_max(c[i]);
  d[i] = simd_min(d[i]);
}
"""
    )
    a, b = torch.randn(32, 4), torch.randn(32, 2).half()
    c, d = torch.randint(0, 30000, (32,)).to(torch.uint16), torch.randint(-99, 99, (32,)).to(torch.int8)
    got = [t.clone() for t in (a, b, c, d)]
    library.k(*got, threads=32, group_size=32)
    torch.testing.assert_close(got[0], a.sum(0).expand(32, 4), rtol=1e-5, atol=1e-5)
    assert torch.equal(got[1], b[torch.arange(32) ^ 1])
    assert set(got[2].tolist()) == {max(c.tolist())}
    assert set(got[3].tolist()) == {int(d.min())}

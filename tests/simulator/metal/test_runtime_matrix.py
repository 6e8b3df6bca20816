"""simdgroup_matrix: products of all types against float64, loads and stores, and where a lane's elements lie."""

from __future__ import annotations

import pytest
import torch

from inductor_mps_attention.simulator.metal import compile_shader

HEADER = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n"
DTYPES = {"float": torch.float32, "half": torch.float16, "bfloat": torch.bfloat16}
# Of D and C, of A and B: those that shipping kernels use.
COMBINATIONS = [("float", "float"), ("float", "half"), ("float", "bfloat"), ("half", "half"), ("bfloat", "bfloat")]


def _product_kernel(accumulator: str, operand: str) -> str:
    return f"""
kernel void {accumulator}_{operand}(device {accumulator}* d, device const {operand}* a, device const {operand}* b,
                                    device const {accumulator}* c, uint group [[threadgroup_position_in_grid]]) {{
  simdgroup_matrix<{operand}, 8, 8> x, y;
  simdgroup_matrix<{accumulator}, 8, 8> sum;
  simdgroup_load(x, a + group * 64, 8);
  simdgroup_load(y, b + group * 64, 8);
  simdgroup_load(sum, c + group * 64, 8);
  simdgroup_multiply_accumulate(sum, x, y, sum);
  simdgroup_store(sum, d + group * 64, 8);
}}
"""


@pytest.fixture(scope="module")
def products():
    return compile_shader(HEADER + "".join(_product_kernel(*pair) for pair in COMBINATIONS))


@pytest.mark.parametrize(("accumulator", "operand"), COMBINATIONS)
def test_products_of_all_types(products, accumulator: str, operand: str):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(20, 8, 8, generator=generator).to(DTYPES[operand]) for _ in range(2))
    c = torch.randn(20, 8, 8, generator=generator).to(DTYPES[accumulator])
    d = torch.full_like(c, float("nan"))
    kernel = getattr(products, f"{accumulator}_{operand}")
    kernel(d, a, b, c, threads=20 * 32, group_size=32)
    exact = a.double() @ b.double() + c.double()
    step = torch.finfo(DTYPES[accumulator]).eps
    assert ((d.double() - exact).abs() <= (8e-7 + step / 2 * exact.abs()) * 1.01).all()
    assert kernel.counters["products"] == 20


def test_mixed_products_and_multiply_without_accumulator():
    library = compile_shader(
        HEADER
        + """kernel void k(device float* d, device const half* a, device const float* b) {
  simdgroup_half8x8 x;
  simdgroup_float8x8 y, z;
  simdgroup_load(x, a);
  simdgroup_load(y, b);
  simdgroup_multiply(z, x, y);
  simdgroup_store(z, d);
}
"""
    )
    a, b, d = torch.randn(8, 8).half(), torch.randn(8, 8), torch.zeros(8, 8)
    library.k(d, a, b, threads=32, group_size=32)
    torch.testing.assert_close(d.double(), a.double() @ b.double(), rtol=1e-6, atol=2e-6)


def test_a_lane_holds_the_elements_that_apple_gives_it():
    """Kernels of the field compute the row and column of thread_elements() themselves."""
    library = compile_shader(
        HEADER
        + """kernel void k(device float* filled, device const float* a, device float* elements, device float* diagonal,
                             uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, a);
  elements[lane * 2] = m.thread_elements()[0];
  elements[lane * 2 + 1] = m.thread_elements()[1];
  simdgroup_store(simdgroup_float8x8(3.0f), diagonal);
  simdgroup_store(make_filled_simdgroup_matrix<float, 8>(2.5f), filled);
}
"""
    )
    a = torch.arange(64.0)
    filled, elements, diagonal = torch.zeros(8, 8), torch.zeros(32, 2), torch.zeros(8, 8)
    library.k(filled, a, elements, diagonal, threads=32, group_size=32)
    for lane in range(32):
        quad = lane // 4
        row, column = (quad & 4) + lane // 2 % 4, (quad & 2) * 2 + lane % 2 * 2
        assert elements[lane].tolist() == [row * 8 + column, row * 8 + column + 1]
    assert torch.equal(diagonal, 3 * torch.eye(8))
    assert torch.equal(filled, torch.full((8, 8), 2.5))


def test_loads_and_stores_with_stride_origin_and_transpose():
    library = compile_shader(
        HEADER
        + """kernel void k(device float* plain, device float* turned, device float* shifted, device const float* a) {
  threadgroup float t[8 * 11];
  simdgroup_float8x8 m;
  simdgroup_load(m, a, 20, ulong2(3, 5));
  simdgroup_store(m, plain, 8);
  simdgroup_load(m, a, 20, ulong2(3, 5), true);
  simdgroup_store(m, turned, 8);
  simdgroup_load(m, a, 20, 0, false);
  simdgroup_store(m, t, 11, ulong2(2, 0), true);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_load(m, t + 2, 11);
  simdgroup_store(m, shifted, 8);
}
"""
    )
    a = torch.randn(16, 20)
    plain, turned, shifted = (torch.zeros(8, 8) for _ in range(3))
    library.k(plain, turned, shifted, a, threads=32, group_size=32)
    block = a[5:13, 3:11]
    assert torch.equal(plain, block)
    assert torch.equal(turned, block.T)
    assert torch.equal(shifted, a[:8, :8].T)


def test_simdgroups_of_one_threadgroup_multiply_apart():
    """Each simdgroup has its own product in progress, and a threadgroup barrier lies between some of them."""
    library = compile_shader(
        HEADER
        + """kernel void k(device float* d, device const float* a, uint sg [[simdgroup_index_in_threadgroup]]) {
  simdgroup_float8x8 m, sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint i = 0; i < 3 + sg; i++) {
    simdgroup_load(m, a + sg * 64, 8);
    simdgroup_multiply_accumulate(sum, m, m, sum);
  }
  threadgroup_barrier(mem_flags::mem_none);
  simdgroup_multiply(sum, sum, m);
  simdgroup_store(sum, d + sg * 64, 8);
}
"""
    )
    a, d = torch.randn(5, 8, 8), torch.zeros(5, 8, 8)
    library.k(d, a, threads=160, group_size=160)
    wide = a.double()
    exact = torch.stack([(3 + i) * wide[i] @ wide[i] @ wide[i] for i in range(5)])
    torch.testing.assert_close(d.double(), exact, rtol=1e-5, atol=1e-4)
    assert library.k.counters["products"] == 3 + 4 + 5 + 6 + 7 + 5
    assert library.k.counters["barriers"] == 1

"""Texts that declare intrinsics of Apple's compiler themselves, as generators of attention kernels do: copies by a
simdgroup, matrices built on vec<T, 64>, overloads for each address space, and no include at all.
"""

from __future__ import annotations

import pytest
import torch

from inductor_mps_attention.simulator import CheckError
from inductor_mps_attention.simulator.metal import ShaderCompileError, compile_shader
from inductor_mps_attention.simulator.metal.translate import translate

COPIES = """
struct pending;
thread pending* copy_line(ulong, ulong, threadgroup void*, const device void*, ulong)
  __asm("air.simdgroup_async_copy_1d.p3i8.p1i8");
thread pending* copy_line(ulong, ulong, device void*, const threadgroup void*, ulong)
  __asm("air.simdgroup_async_copy_1d.p1i8.p3i8");
thread pending* copy_tile(ulong, ulong, threadgroup void*, ulong, ulong, ulong2, const device void*,
                          ulong, ulong, ulong2, long2, int) __asm("air.simdgroup_async_copy_2d.p3i8.p1i8");
void await(int, thread pending**) __asm("air.wait_simdgroup_events");
"""
# A tile of 4 rows of 8 from rows of 5, of which 3 exist; then the tile goes to `out` as one line.
TILE = (
    COPIES
    + """
kernel void k(device T* out, device const T* x, constant int& clamp, uint sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup T tile[32];
  if (sg == 0) {
    thread pending* event =
      copy_tile(sizeof(T), alignof(T), tile, 8, 1, ulong2(8, 4), x, 5, 1, ulong2(5, 3), long2(0), clamp);
    await(1, &event);
  }
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  if (sg == 1) { thread pending* event = copy_line(sizeof(T), alignof(T), out, tile, 32); await(1, &event); }
}
"""
)


@pytest.mark.parametrize("clamp", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8])
def test_a_simdgroup_copies_tiles_and_lines(dtype: torch.dtype, clamp: int):
    name = {torch.float32: "float", torch.float16: "half", torch.uint8: "uchar"}[dtype]
    out, x = torch.zeros(32, dtype=dtype), torch.arange(1, 16).to(dtype)
    kernel = compile_shader(TILE, defines=[f"T={name}"], strict=False, check="full").k
    kernel(out, x, clamp, threads=64, group_size=64)
    rows = x.view(3, 5)
    if clamp:
        expected = torch.nn.functional.pad(rows[None].float(), (0, 3, 0, 1), mode="replicate")[0].to(dtype)
    else:
        expected = torch.nn.functional.pad(rows, (0, 3, 0, 1))
    assert out.view(4, 8).equal(expected)


def test_a_copy_without_a_barrier_behind_it_is_reported():
    text = TILE.replace("metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);", "")
    kernel = compile_shader(text, defines=["T=float"], strict=False, check="full").k
    with pytest.raises(CheckError) as caught:
        kernel(torch.zeros(32), torch.zeros(15), 0, threads=64, group_size=64)
    line = next(number for number, words in enumerate(text.split("\n"), 1) if "copy_line(sizeof" in words)
    assert ("race", line) in {(report.kind, report.line) for report in caught.value.reports}


def test_a_copy_past_the_end_of_a_buffer_is_reported():
    kernel = compile_shader(TILE, defines=["T=float"], strict=False, check="full").k
    with pytest.raises(CheckError) as caught:
        kernel(torch.zeros(32), torch.zeros(14), 0, threads=64, group_size=64)
    assert {report.kind for report in caught.value.reports} == {"out_of_bounds"}


def test_other_intrinsics_and_assembly_are_refused_by_name():
    with pytest.raises(ShaderCompileError, match=r'line 1: "air.atomic.fence": this intrinsic'):
        translate('void f(int) __asm("air.atomic.fence"); kernel void k(device int* o) { f(1); }')
    with pytest.raises(ShaderCompileError, match="line 1: '__asm': inline assembly"):
        translate('void f(int) __asm("f"); kernel void k(device int* o) { f(1); }')


MATRIX = """
using namespace metal;
template <typename T> struct Tile {
  typedef vec<T, 64> storage_type;
  storage_type t;
  METAL_FUNC Tile() thread = default;
  METAL_FUNC Tile(vec<T, 2> pair) thread { *(this->elements()) = pair; }
  METAL_FUNC thread vec<T, 2>* elements() thread { return reinterpret_cast<thread vec<T, 2>*>(&t); }
  METAL_FUNC static device T* at(device T* p, uint row, uint2 origin) { return p + ulong(origin.y * row) + origin.x; }
  METAL_FUNC static threadgroup T* at(threadgroup T* p, ushort row, ushort2 at) { return p + at.y * row + at.x; }
  template <typename U> METAL_FUNC void load(const device U* p, uint row, ushort2 origin) {
    *(elements()) = vec<T, 2>(*(const device vec<U, 2>*)(p + uint(origin.y) * row + uint(origin.x)));
  }
  template <typename U> METAL_FUNC void load(const threadgroup U* p, ushort row, ushort2 origin) {
    *(elements()) = vec<T, 2>(*(const threadgroup vec<U, 2>*)(p + ushort(origin.y) * row + ushort(origin.x)));
  }
  template <typename U, typename V> METAL_FUNC void multiply(Tile<U> a, Tile<V> b) {
    t = __metal_simdgroup_matrix_8x8_multiply_accumulate(a.t, b.t, t, typename Tile<T>::storage_type());
  }
};
template <typename T> void move(threadgroup T* to, ushort row, const device T* from, uint from_row, int turns = 1) {
  for (int i = 0; i < turns; i++) to[i * row] = from[i * from_row];
}
template <typename T> void move(device T* to, uint row, const threadgroup T* from, ushort from_row) {
  to[row] = from[from_row];
}
kernel void k(device float* out, device const half* x, ushort lane [[thread_index_in_simdgroup]]) {
  threadgroup half t[64];
  for (ushort i = lane; i < 64; i += 32) t[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  ushort2 place((lane / 4 & 2) * 2 + lane % 2 * 2, (lane / 4 & 4) + lane / 2 % 4);
  Tile<half> a, b;
  Tile<float> c(vec<float, 2>(1));
  a.load(x, 8, place);
  b.load(t, 8, place);
  c.multiply(a, b);
  *(device float2*)Tile<float>::at(out, 8, uint2(place)) = *(c.elements());
  threadgroup float line[4];
  move(line, 1, out + 64, 2);
}
"""


def test_a_matrix_of_the_texts_own_multiplies():
    x = torch.randn(64).half()
    out = torch.zeros(96)
    compile_shader(MATRIX, strict=False, check="full").k(out, x, threads=32, group_size=32)
    expected = 1 + x.double().view(8, 8) @ x.double().view(8, 8)
    assert torch.allclose(out[:64].view(8, 8).double(), expected, atol=1e-5)


def test_of_overloads_by_address_space_the_wider_integers_stay():
    text = "uint f(device uint* p, uint n) { return p[n]; } uint f(threadgroup uint* p, ushort n) { return p[n]; }"
    code = translate(f"{text} kernel void k(device uint* o) {{ o[0] = f(o, 70000); }}").code
    assert code.count("uint f(") == 1
    assert "ushort" not in code

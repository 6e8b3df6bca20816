#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

typedef half element;

constant constexpr int SIMDGROUPS = 4;
constant constexpr int V_HEAD_DIM = 64;

// delta = rowsum(grad_out * out), in float: what the softmax's backward takes off every score. One simdgroup a row.
// 0 bytes of threadgroup memory, about 8 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_backward_delta_f16_d64x64_full_s4r1t8_v1(
    device const half* out [[buffer(0)]],
    device const half* grad_out [[buffer(1)]],
    device float* delta [[buffer(2)]],
    constant long* params [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  const int heads = int(params[1]);
  const int q_len = int(params[3]);
  const long out_batch_stride = long(params[5]);
  const long out_head_stride = long(params[6]);
  const long out_row_stride = long(params[7]);
  const long grad_out_batch_stride = long(params[8]);
  const long grad_out_head_stride = long(params[9]);
  const long grad_out_row_stride = long(params[10]);
  // Heads are the fastest axis of the grid.
  const long batch = group.z;
  const int block = int(group.y);
  const long head = group.x;
  const long row = long(block) * SIMDGROUPS + simdgroup_index;
  if (row >= q_len) {
    return;
  }
  out += batch * out_batch_stride + head * out_head_stride;
  grad_out += batch * grad_out_batch_stride + head * grad_out_head_stride;
  out += row * out_row_stride;
  grad_out += row * grad_out_row_stride;
  float sum = 0.0f;
  for (int column = int(lane); column < V_HEAD_DIM; column += 32) {
    sum = fma(float(out[column]), float(grad_out[column]), sum);
  }
  sum = simd_sum(sum);
  if (lane == 0) {
    delta[(batch * heads + head) * q_len + row] = sum;
  }
}

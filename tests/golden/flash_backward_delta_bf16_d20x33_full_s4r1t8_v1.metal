#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

typedef bfloat element;
typedef bfloat operand;  // what the operands of a product hold; sums are float
typedef simdgroup_matrix<operand, 8, 8> operand_fragment;
typedef simdgroup_matrix<float, 8, 8> sum_fragment;

constant constexpr int SIMDGROUPS = 4;
constant constexpr int V_FRAGMENTS = 5;

// delta = rowsum(grad_out * out): what the softmax's backward takes off every score. It is the diagonal of
// grad_out out^T, by the same products and in the same order as grad_out v^T: where a query sees one key alone, both are
// the same bits, and its gradients are exactly 0. One simdgroup owns 8 rows.
// 0 bytes of threadgroup memory, about 8 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_backward_delta_bf16_d20x33_full_s4r1t8_v1(
    device const bfloat* out [[buffer(0)]],
    device const bfloat* grad_out [[buffer(1)]],
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
  // This lane's two elements of an 8x8 fragment: row bits are lane bits 4 2 1, column bits 3 and 0.
  const int lane_row = int(((lane >> 2) & 4u) | ((lane >> 1) & 3u));
  const int lane_column = int(((lane >> 1) & 4u) | ((lane << 1) & 2u));
  const long head = group.x;
  const int first_row = (block * SIMDGROUPS + int(simdgroup_index)) * 8;
  out += batch * out_batch_stride + head * out_head_stride;
  grad_out += batch * grad_out_batch_stride + head * grad_out_head_stride;
  sum_fragment products = make_filled_simdgroup_matrix<float, 8>(0.0f);
  #pragma clang loop unroll(disable)
  for (int d = 0; d < V_FRAGMENTS; d++) {
    operand_fragment grads;
    operand_fragment outputs;  // transposed
    #pragma clang loop unroll(full)
    for (int e = 0; e < 2; e++) {
      const int row = first_row + lane_row;
      const int column = d * 8 + lane_column + e;
      const int other_row = first_row + lane_column + e;
      const int other_column = d * 8 + lane_row;
      grads.thread_elements()[e] = row < q_len && column < 33 ? operand(grad_out[row * grad_out_row_stride + column]) : operand(0.0f);
      outputs.thread_elements()[e] = other_row < q_len && other_column < 33 ? operand(out[other_row * out_row_stride + other_column]) : operand(0.0f);
    }
    simdgroup_multiply_accumulate(products, grads, outputs, products);
  }
  const int row = first_row + lane_row;
  const int on_diagonal = lane_row - lane_column;  // 0 or 1: the element that lies there
  if (row < q_len && (on_diagonal == 0 || on_diagonal == 1)) {
    const float sum = on_diagonal == 0 ? products.thread_elements()[0] : products.thread_elements()[1];
    delta[(batch * heads + head) * q_len + row] = sum;
  }
}

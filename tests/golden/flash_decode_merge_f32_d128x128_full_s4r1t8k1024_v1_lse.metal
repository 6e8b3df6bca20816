#include <metal_stdlib>
using namespace metal;

typedef float element;

constant constexpr int SIMDGROUPS = 4;
constant constexpr int PART_KEYS = 1024;  // keys of a part
constant constexpr int V_HEAD_DIM = 128;
constant constexpr int COLUMNS = 4;  // elements of a row that a lane has

// Scaled scores keep their natural unit, with the roundings of scale * (q . k), so that equal maxima are exactly equal.
constant constexpr float MASKED = -3.4e+38f;
constant constexpr float LEAST_MAXIMUM = -1.7e+38f;

// out = what the parts of the keys leave of each row, added up in their order; logsumexp is the natural log of the softmax denominator.
// A row without a key is 0, its logsumexp -inf. One simdgroup a row.
// 0 bytes of threadgroup memory, about 24 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_decode_merge_f32_d128x128_full_s4r1t8k1024_v1_lse(
    device const float* part_sums [[buffer(0)]],
    device const float* part_statistics [[buffer(1)]],
    device float* out [[buffer(2)]],
    device float* logsumexp [[buffer(3)]],
    constant long* params [[buffer(4)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  const int heads = int(params[1]);
  const int q_len = int(params[3]);
  const int kv_len = int(params[4]);
  const long out_batch_stride = long(params[5]);
  const long out_head_stride = long(params[6]);
  const long out_row_stride = long(params[7]);
  const long batch = group.z;
  const long rows = long(heads) * q_len;
  const long row = long(group.x) * SIMDGROUPS + simdgroup_index;
  if (row >= rows) {
    return;
  }
  const long head = row / q_len;
  out += batch * out_batch_stride + head * out_head_stride;
  out += (row - head * q_len) * out_row_stride;
  const int parts = (kv_len + PART_KEYS - 1) / PART_KEYS;
  part_sums += (batch * parts * rows + row) * V_HEAD_DIM;
  part_statistics += (batch * parts * rows + row) * 2;

  float maximum = LEAST_MAXIMUM;
  for (int part = int(lane); part < parts; part += 32) {
    maximum = max(maximum, part_statistics[part * rows * 2]);
  }
  maximum = simd_max(maximum);
  float sum = 0.0f;
  float totals[COLUMNS];
  #pragma clang loop unroll(full)
  for (int n = 0; n < COLUMNS; n++) {
    totals[n] = 0.0f;
  }
  for (int part = 0; part < parts; part++) {
    const float part_sum = part_statistics[part * rows * 2 + 1];
    if (part_sum == 0.0f) {
      continue;  // nothing was seen there, and no sums were written
    }
    const float factor = fast::exp2((part_statistics[part * rows * 2] - maximum) * M_LOG2E_F);
    sum = fma(part_sum, factor, sum);
    #pragma clang loop unroll(full)
    for (int n = 0; n < COLUMNS; n++) {
      const int column = n * 32 + int(lane);
      totals[n] = fma(part_sums[part * rows * V_HEAD_DIM + column], factor, totals[n]);
    }
  }

  // 0 only if no key was seen: the largest weight of a row is 1. A NaN goes on into the output.
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  #pragma clang loop unroll(full)
  for (int n = 0; n < COLUMNS; n++) {
    const int column = n * 32 + int(lane);
    out[column] = element(totals[n] * inverse);
  }
  if (lane == 0) {
    logsumexp[batch * rows + row] = sum == 0.0f ? -INFINITY : maximum + log2(sum) * M_LN2_F;
  }
}

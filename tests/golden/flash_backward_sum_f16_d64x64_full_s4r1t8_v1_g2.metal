#include <metal_stdlib>
using namespace metal;

typedef half element;

constant constexpr int SIMDGROUPS = 4;
constant constexpr int GROUP_HEADS = 2;  // query heads of a part

// grad_k and grad_v = what the parts of the query heads leave of each key, added up in their order. One simdgroup a key.
// 0 bytes of threadgroup memory, about 8 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_backward_sum_f16_d64x64_full_s4r1t8_v1_g2(
    device const float* grad_k_parts [[buffer(0)]],
    device const float* grad_v_parts [[buffer(1)]],
    device half* grad_k [[buffer(2)]],
    device half* grad_v [[buffer(3)]],
    constant long* params [[buffer(4)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  const int heads = int(params[1]);
  const int kv_heads = int(params[2]);
  const int kv_len = int(params[4]);
  const long grad_k_batch_stride = long(params[5]);
  const long grad_k_head_stride = long(params[6]);
  const long grad_k_row_stride = long(params[7]);
  const long grad_v_batch_stride = long(params[8]);
  const long grad_v_head_stride = long(params[9]);
  const long grad_v_row_stride = long(params[10]);
  // Heads are the fastest axis of the grid.
  const long batch = group.z;
  const int block = int(group.y);
  const long kv_head = group.x;
  const int key = block * SIMDGROUPS + int(simdgroup_index);
  if (key >= kv_len) {
    return;
  }
  const int parts = (heads / kv_heads + GROUP_HEADS - 1) / GROUP_HEADS;
  const long first = (batch * kv_heads + kv_head) * parts * kv_len + key;  // this key's row of the first part

  grad_k += batch * grad_k_batch_stride + kv_head * grad_k_head_stride;
  grad_k += key * grad_k_row_stride;
  grad_k_parts += first * 64;
  for (int column = int(lane); column < 64; column += 32) {
    float sum = 0.0f;
    for (int part = 0; part < parts; part++) {
      sum += grad_k_parts[long(part) * kv_len * 64 + column];
    }
    grad_k[column] = element(sum);
  }

  grad_v += batch * grad_v_batch_stride + kv_head * grad_v_head_stride;
  grad_v += key * grad_v_row_stride;
  grad_v_parts += first * 64;
  for (int column = int(lane); column < 64; column += 32) {
    float sum = 0.0f;
    for (int part = 0; part < parts; part++) {
      sum += grad_v_parts[long(part) * kv_len * 64 + column];
    }
    grad_v[column] = element(sum);
  }
}

#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

typedef float element;
typedef float operand;  // what the operands of a product hold; sums are float
typedef simdgroup_matrix<operand, 8, 8> operand_fragment;
typedef simdgroup_matrix<float, 8, 8> sum_fragment;

constant constexpr int SIMDGROUPS = 4;
constant constexpr int THREADS = 128;
constant constexpr int ROW_FRAGMENTS = 1;  // 8-row fragments that a simdgroup owns
constant constexpr int SIMDGROUP_ROWS = 8;
constant constexpr int BLOCK_ROWS = 32;  // rows that a threadgroup owns
constant constexpr int TILE = 16;  // rows of the other side, staged at a time
constant constexpr int TILE_FRAGMENTS = 2;
constant constexpr int QK_FRAGMENTS = 4;
constant constexpr int V_FRAGMENTS = 8;
constant constexpr int QK_PITCH = 36;  // elements from one staged row to the next
constant constexpr int V_PITCH = 68;

// A row that sees nothing: exp2(score - ROW_UNSEEN) is 0, without an infinity that fast math may not know.
constant constexpr float ROW_UNSEEN = 1.7e+38f;

// logsumexp (natural log) in the log2 domain of the scores.
inline float shift_of(float logsumexp) {
  return logsumexp < -ROW_UNSEEN ? ROW_UNSEEN : logsumexp * M_LOG2E_F;
}

// Copies rows [first, first + TILE) of 32 elements into a tile; rows past the end become zeros.
inline void stage_32(device const element* source, long row_stride, int first, int rows,
                     threadgroup element* tile, int pitch, int thread_index) {
  constexpr int UNITS = 32;
  for (int i = thread_index; i < TILE * UNITS; i += THREADS) {
    const int row = i / UNITS;
    const int column = (i - row * UNITS) * 1;
    const bool inside = first + row < rows;
    tile[row * pitch + column] = inside ? source[(first + row) * row_stride + column] : element(0.0f);
  }
}

// One row of 32 elements into a fragment row: this lane takes two neighbouring elements of each fragment.
inline void load_row_32(thread operand_fragment (&own)[4], device const element* source, long row_stride,
                        int row, int rows, int lane_column) {
  #pragma clang loop unroll(full)
  for (int d = 0; d < 4; d++) {
    const long at = row * row_stride + d * 8 + lane_column;
    own[d].thread_elements()[0] = row < rows ? operand(source[at]) : operand(0.0f);
    own[d].thread_elements()[1] = row < rows ? operand(source[at + 1]) : operand(0.0f);
  }
}

// The reverse, for sums: multiplied by `factor` in float, then rounded once.
inline void store_row_32(device element* target, long row_stride, thread sum_fragment (&own)[4], float factor,
                         int row, int rows, int lane_column) {
  if (row >= rows) {
    return;
  }
  #pragma clang loop unroll(full)
  for (int d = 0; d < 4; d++) {
    const long at = row * row_stride + d * 8 + lane_column;
    target[at] = element(own[d].thread_elements()[0] * factor);
    target[at + 1] = element(own[d].thread_elements()[1] * factor);
  }
}

// Copies rows [first, first + TILE) of 64 elements into a tile; rows past the end become zeros.
inline void stage_64(device const element* source, long row_stride, int first, int rows,
                     threadgroup element* tile, int pitch, int thread_index) {
  constexpr int UNITS = 64;
  for (int i = thread_index; i < TILE * UNITS; i += THREADS) {
    const int row = i / UNITS;
    const int column = (i - row * UNITS) * 1;
    const bool inside = first + row < rows;
    tile[row * pitch + column] = inside ? source[(first + row) * row_stride + column] : element(0.0f);
  }
}

// One row of 64 elements into a fragment row: this lane takes two neighbouring elements of each fragment.
inline void load_row_64(thread operand_fragment (&own)[8], device const element* source, long row_stride,
                        int row, int rows, int lane_column) {
  #pragma clang loop unroll(full)
  for (int d = 0; d < 8; d++) {
    const long at = row * row_stride + d * 8 + lane_column;
    own[d].thread_elements()[0] = row < rows ? operand(source[at]) : operand(0.0f);
    own[d].thread_elements()[1] = row < rows ? operand(source[at + 1]) : operand(0.0f);
  }
}

// The reverse, for sums: multiplied by `factor` in float, then rounded once.
inline void store_row_64(device element* target, long row_stride, thread sum_fragment (&own)[8], float factor,
                         int row, int rows, int lane_column) {
  if (row >= rows) {
    return;
  }
  #pragma clang loop unroll(full)
  for (int d = 0; d < 8; d++) {
    const long at = row * row_stride + d * 8 + lane_column;
    target[at] = element(own[d].thread_elements()[0] * factor);
    target[at + 1] = element(own[d].thread_elements()[1] * factor);
  }
}

// An 8x8 fragment of a tile, and its transpose.
inline void load_fragment(thread operand_fragment& loaded, threadgroup const element* tile, int pitch,
                          int lane_row, int lane_column) {
  simdgroup_load(loaded, tile, pitch);
}
inline void load_transposed(thread operand_fragment& loaded, threadgroup const element* tile, int pitch,
                            int lane_row, int lane_column) {
  simdgroup_load(loaded, tile, pitch, ulong2(0, 0), true);
}

// grad_v = weight^T grad_out and grad_k = scale * grad_score^T q, summed over the query heads that share a key head.
// One simdgroup owns SIMDGROUP_ROWS keys; query rows stream by in tiles. A key that nobody sees gets 0.
// 6784 bytes of threadgroup memory, about 224 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_backward_dkv_f32_d32x64_l_s4r1t16_v1(
    device const float* q [[buffer(0)]],
    device const float* k [[buffer(1)]],
    device const float* v [[buffer(2)]],
    device const float* grad_out [[buffer(3)]],
    device const float* logsumexp [[buffer(4)]],
    device const float* delta [[buffer(5)]],
    device float* grad_k [[buffer(6)]],
    device float* grad_v [[buffer(7)]],
    constant long* params [[buffer(8)]],
    constant float& scale [[buffer(9)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float query_tile[576];
  threadgroup float grad_tile[1088];
  threadgroup float shift_tile[16];
  threadgroup float delta_tile[16];
  const int heads = int(params[1]);
  const int kv_heads = int(params[2]);
  const int q_len = int(params[3]);
  const int kv_len = int(params[4]);
  const int lower = int(params[5]);
  const long q_batch_stride = long(params[6]);
  const long q_head_stride = long(params[7]);
  const long q_row_stride = long(params[8]);
  const long k_batch_stride = long(params[9]);
  const long k_head_stride = long(params[10]);
  const long k_row_stride = long(params[11]);
  const long v_batch_stride = long(params[12]);
  const long v_head_stride = long(params[13]);
  const long v_row_stride = long(params[14]);
  const long grad_out_batch_stride = long(params[15]);
  const long grad_out_head_stride = long(params[16]);
  const long grad_out_row_stride = long(params[17]);
  const long grad_k_batch_stride = long(params[18]);
  const long grad_k_head_stride = long(params[19]);
  const long grad_k_row_stride = long(params[20]);
  const long grad_v_batch_stride = long(params[21]);
  const long grad_v_head_stride = long(params[22]);
  const long grad_v_row_stride = long(params[23]);
  // Heads are the fastest axis of the grid; the blocks of rows with most work come last, so they start first.
  const long batch = group.z;
  const int block = int(groups.y - 1 - group.y);
  // This lane's two elements of an 8x8 fragment: row bits are lane bits 4 2 1, column bits 3 and 0.
  const int lane_row = int(((lane >> 2) & 4u) | ((lane >> 1) & 3u));
  const int lane_column = int(((lane >> 1) & 4u) | ((lane << 1) & 2u));
  const long kv_head = group.x;
  const int sharing = heads / kv_heads;  // query heads that read this key head
  q += batch * q_batch_stride + kv_head * sharing * q_head_stride;
  k += batch * k_batch_stride + kv_head * k_head_stride;
  v += batch * v_batch_stride + kv_head * v_head_stride;
  grad_out += batch * grad_out_batch_stride + kv_head * sharing * grad_out_head_stride;
  grad_k += batch * grad_k_batch_stride + kv_head * grad_k_head_stride;
  grad_v += batch * grad_v_batch_stride + kv_head * grad_v_head_stride;
  logsumexp += (batch * heads + kv_head * sharing) * q_len;
  delta += (batch * heads + kv_head * sharing) * q_len;
  const int block_first = block * BLOCK_ROWS;
  const int block_end = min(block_first + BLOCK_ROWS, kv_len);
  const int first_key = block_first + int(simdgroup_index) * SIMDGROUP_ROWS;
  const int end_key = min(first_key + SIMDGROUP_ROWS, kv_len);
  const float scale_log2 = scale * M_LOG2E_F;

  operand_fragment own_key[ROW_FRAGMENTS][QK_FRAGMENTS];
  operand_fragment own_value[ROW_FRAGMENTS][V_FRAGMENTS];
  sum_fragment key_sums[ROW_FRAGMENTS][QK_FRAGMENTS];
  sum_fragment value_sums[ROW_FRAGMENTS][V_FRAGMENTS];
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    load_row_32(own_key[i], k, k_row_stride, first_key + i * 8 + lane_row, kv_len, lane_column);
    load_row_64(own_value[i], v, v_row_stride, first_key + i * 8 + lane_row, kv_len, lane_column);
    #pragma clang loop unroll(full)
    for (int d = 0; d < QK_FRAGMENTS; d++) {
      key_sums[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
    #pragma clang loop unroll(full)
    for (int d = 0; d < V_FRAGMENTS; d++) {
      value_sums[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
  }

  const int first_row = 0;
  const int end_row = clamp(block_end - lower, 0, q_len);
  for (int member = 0; member < sharing; member++) {
    for (int row = first_row; row < end_row; row += TILE) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      stage_32(q, q_row_stride, row, q_len, query_tile, QK_PITCH, int(thread_index));
      stage_64(grad_out, grad_out_row_stride, row, q_len, grad_tile, V_PITCH, int(thread_index));
      if (int(thread_index) < TILE) {
        const int staged = row + int(thread_index);
        shift_tile[thread_index] = staged < q_len ? shift_of(logsumexp[staged]) : ROW_UNSEEN;
        delta_tile[thread_index] = staged < q_len ? delta[staged] : 0.0f;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      const int tile_end = min(row + TILE, q_len);
      if (first_key >= end_key || end_key - row <= lower) {
        continue;
      }
      // Keys past the end need no mask: each only makes its own gradients, which are not stored.
      const bool cut = row + TILE > q_len || first_key - tile_end + 1 < lower;

      // Not unrolled: the body alone is 24 products, and instruction caches are small.
      for (int j = 0; j < TILE_FRAGMENTS; j++) {
        threadgroup const element* queries = query_tile + j * 8 * QK_PITCH;
        threadgroup const element* grads = grad_tile + j * 8 * V_PITCH;
        sum_fragment score[ROW_FRAGMENTS];
        sum_fragment grad_weight[ROW_FRAGMENTS];
        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          score[i] = make_filled_simdgroup_matrix<float, 8>(0.0f);
          grad_weight[i] = make_filled_simdgroup_matrix<float, 8>(0.0f);
        }
        #pragma clang loop unroll(full)
        for (int d = 0; d < QK_FRAGMENTS; d++) {
          operand_fragment query_fragment;
          load_transposed(query_fragment, queries + d * 8, QK_PITCH, lane_row, lane_column);
          #pragma clang loop unroll(full)
          for (int i = 0; i < ROW_FRAGMENTS; i++) {
            simdgroup_multiply_accumulate(score[i], own_key[i][d], query_fragment, score[i]);
          }
        }
        #pragma clang loop unroll(full)
        for (int d = 0; d < V_FRAGMENTS; d++) {
          operand_fragment grad_fragment;
          load_transposed(grad_fragment, grads + d * 8, V_PITCH, lane_row, lane_column);
          #pragma clang loop unroll(full)
          for (int i = 0; i < ROW_FRAGMENTS; i++) {
            simdgroup_multiply_accumulate(grad_weight[i], own_value[i][d], grad_fragment, grad_weight[i]);
          }
        }

        // Fragments are [keys x queries] here: a lane's two elements are two queries of one key.
        operand_fragment weight[ROW_FRAGMENTS];
        operand_fragment grad_score[ROW_FRAGMENTS];
        #pragma clang loop unroll(full)
        for (int e = 0; e < 2; e++) {
          const int query = j * 8 + lane_column + e;
          const float shift = shift_tile[query];
          const float row_delta = delta_tile[query];
          #pragma clang loop unroll(full)
          for (int i = 0; i < ROW_FRAGMENTS; i++) {
            float exponential = fast::exp2(fma(score[i].thread_elements()[e], scale_log2, -shift));
            float gradient = exponential * (grad_weight[i].thread_elements()[e] - row_delta);
            if (cut) {
              const int key = first_key + i * 8 + lane_row;
              const bool seen = row + query < q_len && key - (row + query) >= lower;
              exponential = seen ? exponential : 0.0f;
              gradient = seen ? gradient : 0.0f;
            }
            weight[i].thread_elements()[e] = operand(exponential);
            grad_score[i].thread_elements()[e] = operand(gradient);
          }
        }

        #pragma clang loop unroll(full)
        for (int d = 0; d < V_FRAGMENTS; d++) {
          operand_fragment grad_fragment;
          load_fragment(grad_fragment, grads + d * 8, V_PITCH, lane_row, lane_column);
          #pragma clang loop unroll(full)
          for (int i = 0; i < ROW_FRAGMENTS; i++) {
            simdgroup_multiply_accumulate(value_sums[i][d], weight[i], grad_fragment, value_sums[i][d]);
          }
        }
        #pragma clang loop unroll(full)
        for (int d = 0; d < QK_FRAGMENTS; d++) {
          operand_fragment query_fragment;
          load_fragment(query_fragment, queries + d * 8, QK_PITCH, lane_row, lane_column);
          #pragma clang loop unroll(full)
          for (int i = 0; i < ROW_FRAGMENTS; i++) {
            simdgroup_multiply_accumulate(key_sums[i][d], grad_score[i], query_fragment, key_sums[i][d]);
          }
        }
      }
    }
    q += q_head_stride;
    grad_out += grad_out_head_stride;
    logsumexp += q_len;
    delta += q_len;
  }

  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    const int key = first_key + i * 8 + lane_row;
    store_row_32(grad_k, grad_k_row_stride, key_sums[i], scale, key, kv_len, lane_column);
    store_row_64(grad_v, grad_v_row_stride, value_sums[i], 1.0f, key, kv_len, lane_column);
  }
}

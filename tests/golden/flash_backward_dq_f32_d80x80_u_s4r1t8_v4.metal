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
constant constexpr int TILE = 8;  // rows of the other side, staged at a time
constant constexpr int TILE_FRAGMENTS = 1;
constant constexpr int QK_FRAGMENTS = 10;
constant constexpr int V_FRAGMENTS = 10;
constant constexpr int QK_PITCH = 84;  // elements from one staged row to the next
constant constexpr int V_PITCH = 84;

// A row that sees nothing: exp2(score - ROW_UNSEEN) is 0, without an infinity that fast math may not know.
constant constexpr float ROW_UNSEEN = 1.7e+38f;

// logsumexp (natural log) in the log2 domain of the scores.
inline float shift_of(float logsumexp) {
  return logsumexp < -ROW_UNSEEN ? ROW_UNSEEN : logsumexp * M_LOG2E_F;
}

// Copies rows [first, first + TILE) of 80 elements into a tile; rows past the end become zeros.
inline void stage_80(device const element* source, long row_stride, int first, int rows,
                     threadgroup element* tile, int pitch, int thread_index) {
  constexpr int UNITS = 20;
  for (int i = thread_index; i < TILE * UNITS; i += THREADS) {
    const int row = i / UNITS;
    const int column = (i - row * UNITS) * 4;
    const bool inside = first + row < rows;
    threadgroup uint4* target = (threadgroup uint4*)(tile + row * pitch + column);
    *target = inside ? *(device const uint4*)(source + (first + row) * row_stride + column) : uint4(0u);
  }
}

// One row of 80 elements into a fragment row: this lane takes two neighbouring elements of each fragment.
inline void load_row_80(thread operand_fragment (&own)[10], device const element* source, long row_stride,
                        int row, int rows, int lane_column) {
  #pragma clang loop unroll(full)
  for (int d = 0; d < 10; d++) {
    const long at = row * row_stride + d * 8 + lane_column;
    own[d].thread_elements()[0] = row < rows ? operand(source[at]) : operand(0.0f);
    own[d].thread_elements()[1] = row < rows ? operand(source[at + 1]) : operand(0.0f);
  }
}

// The reverse, for sums: multiplied by `factor` in float, then rounded once.
inline void store_row_80(device element* target, long row_stride, thread sum_fragment (&own)[10], float factor,
                         int row, int rows, int lane_column) {
  if (row >= rows) {
    return;
  }
  #pragma clang loop unroll(full)
  for (int d = 0; d < 10; d++) {
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

// grad_q = scale * grad_score k, where grad_score = weight * (grad_out v^T - delta) and weight is the softmax.
// One simdgroup owns SIMDGROUP_ROWS query rows; keys stream by in tiles. A row without a key gets 0.
// 5376 bytes of threadgroup memory, about 272 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_backward_dq_f32_d80x80_u_s4r1t8_v4(
    device const float* q [[buffer(0)]],
    device const float* k [[buffer(1)]],
    device const float* v [[buffer(2)]],
    device const float* grad_out [[buffer(3)]],
    device const float* logsumexp [[buffer(4)]],
    device const float* delta [[buffer(5)]],
    device float* grad_q [[buffer(6)]],
    constant long* params [[buffer(7)]],
    constant float& scale [[buffer(8)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float key_tile[672];
  threadgroup float value_tile[672];
  const int heads = int(params[1]);
  const int kv_heads = int(params[2]);
  const int q_len = int(params[3]);
  const int kv_len = int(params[4]);
  const int upper = int(params[5]);
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
  const long grad_q_batch_stride = long(params[18]);
  const long grad_q_head_stride = long(params[19]);
  const long grad_q_row_stride = long(params[20]);
  // Heads are the fastest axis of the grid; the blocks of rows with most work come last, so they start first.
  const long batch = group.z;
  const int block = int(groups.y - 1 - group.y);
  // This lane's two elements of an 8x8 fragment: row bits are lane bits 4 2 1, column bits 3 and 0.
  const int lane_row = int(((lane >> 2) & 4u) | ((lane >> 1) & 3u));
  const int lane_column = int(((lane >> 1) & 4u) | ((lane << 1) & 2u));
  const long head = group.x;
  const long kv_head = head / (heads / kv_heads);
  q += batch * q_batch_stride + head * q_head_stride;
  k += batch * k_batch_stride + kv_head * k_head_stride;
  v += batch * v_batch_stride + kv_head * v_head_stride;
  grad_out += batch * grad_out_batch_stride + head * grad_out_head_stride;
  grad_q += batch * grad_q_batch_stride + head * grad_q_head_stride;
  logsumexp += (batch * heads + head) * q_len;
  delta += (batch * heads + head) * q_len;
  const int block_first = block * BLOCK_ROWS;
  const int block_end = min(block_first + BLOCK_ROWS, q_len);
  const int first_row = block_first + int(simdgroup_index) * SIMDGROUP_ROWS;
  const int end_row = min(first_row + SIMDGROUP_ROWS, q_len);
  const float scale_log2 = scale * M_LOG2E_F;

  operand_fragment query[ROW_FRAGMENTS][QK_FRAGMENTS];
  operand_fragment grad[ROW_FRAGMENTS][V_FRAGMENTS];
  sum_fragment sums[ROW_FRAGMENTS][QK_FRAGMENTS];
  float shift[ROW_FRAGMENTS];
  float row_delta[ROW_FRAGMENTS];
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    const int row = first_row + i * 8 + lane_row;
    load_row_80(query[i], q, q_row_stride, row, q_len, lane_column);
    load_row_80(grad[i], grad_out, grad_out_row_stride, row, q_len, lane_column);
    shift[i] = row < q_len ? shift_of(logsumexp[row]) : ROW_UNSEEN;
    row_delta[i] = row < q_len ? delta[row] : 0.0f;
    #pragma clang loop unroll(full)
    for (int d = 0; d < QK_FRAGMENTS; d++) {
      sums[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
  }

  const int first_key = 0;
  const int end_key = clamp(block_end + upper, 0, kv_len);
  for (int key = first_key; key < end_key; key += TILE) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_80(k, k_row_stride, key, kv_len, key_tile, QK_PITCH, int(thread_index));
    stage_80(v, v_row_stride, key, kv_len, value_tile, V_PITCH, int(thread_index));
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (first_row >= end_row || key - end_row >= upper) {
      continue;
    }
    const bool cut = key + TILE > kv_len || key + TILE - 1 - first_row > upper;

    // Not unrolled: the body alone is 30 products, and instruction caches are small.
    for (int j = 0; j < TILE_FRAGMENTS; j++) {
      threadgroup const element* keys = key_tile + j * 8 * QK_PITCH;
      threadgroup const element* values = value_tile + j * 8 * V_PITCH;
      sum_fragment score[ROW_FRAGMENTS];
      sum_fragment grad_weight[ROW_FRAGMENTS];
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        score[i] = make_filled_simdgroup_matrix<float, 8>(0.0f);
        grad_weight[i] = make_filled_simdgroup_matrix<float, 8>(0.0f);
      }
      #pragma clang loop unroll(full)
      for (int d = 0; d < QK_FRAGMENTS; d++) {
        operand_fragment key_fragment;
        load_transposed(key_fragment, keys + d * 8, QK_PITCH, lane_row, lane_column);
        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          simdgroup_multiply_accumulate(score[i], query[i][d], key_fragment, score[i]);
        }
      }
      #pragma clang loop unroll(full)
      for (int d = 0; d < V_FRAGMENTS; d++) {
        operand_fragment value_fragment;
        load_transposed(value_fragment, values + d * 8, V_PITCH, lane_row, lane_column);
        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          simdgroup_multiply_accumulate(grad_weight[i], grad[i][d], value_fragment, grad_weight[i]);
        }
      }

      operand_fragment grad_score[ROW_FRAGMENTS];
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        const int row = first_row + i * 8 + lane_row;
        #pragma clang loop unroll(full)
        for (int e = 0; e < 2; e++) {
          const float weight = fast::exp2(fma(score[i].thread_elements()[e], scale_log2, -shift[i]));
          float gradient = weight * (grad_weight[i].thread_elements()[e] - row_delta[i]);
          if (cut) {
            const int column = key + j * 8 + lane_column + e;
            const bool seen = column < kv_len && column - row <= upper;
            gradient = seen ? gradient : 0.0f;
          }
          grad_score[i].thread_elements()[e] = operand(gradient);
        }
      }

      #pragma clang loop unroll(full)
      for (int d = 0; d < QK_FRAGMENTS; d++) {
        operand_fragment key_fragment;
        load_fragment(key_fragment, keys + d * 8, QK_PITCH, lane_row, lane_column);
        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          simdgroup_multiply_accumulate(sums[i][d], grad_score[i], key_fragment, sums[i][d]);
        }
      }
    }
  }

  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    store_row_80(grad_q, grad_q_row_stride, sums[i], scale, first_row + i * 8 + lane_row, q_len, lane_column);
  }
}

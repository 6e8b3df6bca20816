#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

typedef half element;
typedef half operand;  // what the operands of a product hold; sums are float
typedef simdgroup_matrix<operand, 8, 8> operand_fragment;
typedef simdgroup_matrix<float, 8, 8> sum_fragment;

constant constexpr int SIMDGROUPS = 4;
constant constexpr int THREADS = 128;
constant constexpr int ROW_FRAGMENTS = 2;  // 8-row fragments that a simdgroup owns
constant constexpr int SIMDGROUP_ROWS = 16;
constant constexpr int BLOCK_ROWS = 64;  // rows that a threadgroup owns
constant constexpr int TILE = 32;  // rows of the other side, staged at a time
constant constexpr int TILE_FRAGMENTS = 4;
constant constexpr int QK_FRAGMENTS = 8;
constant constexpr int V_FRAGMENTS = 8;
constant constexpr int QK_PITCH = 72;  // elements from one staged row to the next
constant constexpr int V_PITCH = 72;

// A row that sees nothing: exp2(score - ROW_UNSEEN) is 0, without an infinity that fast math may not know.
constant constexpr float ROW_UNSEEN = 1.7e+38f;

// Scores and shifts in the log2 domain: `factor` is the scale times log2(e).
inline float shift_of(float logsumexp) {
  return logsumexp < -ROW_UNSEEN ? ROW_UNSEEN : logsumexp * M_LOG2E_F;
}
inline float weight_of(float score, float factor, float shift) {
  return fast::exp2(fma(score, factor, -shift));
}

// One row of 64 elements into a fragment row: this lane takes two neighbouring elements of each fragment.
inline void load_row_64(thread operand_fragment (&own)[8], device const element* source, long row_stride,
                        int row, int rows, int lane_column) {
  #pragma clang loop unroll(full)
  for (int d = 0; d < 8; d++) {
    const int column = d * 8 + lane_column;
    const long at = row * row_stride + column;
    own[d].thread_elements()[0] = row < rows ? operand(source[at]) : operand(0.0f);
    own[d].thread_elements()[1] = row < rows ? operand(source[at + 1]) : operand(0.0f);
  }
}

// Sums into one row: multiplied by `factor` in float, then rounded once.
inline void store_row_64(device element* target, long row_stride, thread sum_fragment (&own)[8], float factor,
                         int row, int rows, int lane_column) {
  if (row >= rows) {
    return;
  }
  #pragma clang loop unroll(full)
  for (int d = 0; d < 8; d++) {
    const int column = d * 8 + lane_column;
    const long at = row * row_stride + column;
    target[at] = element(own[d].thread_elements()[0] * factor);
    target[at + 1] = element(own[d].thread_elements()[1] * factor);
  }
}

// An 8x8 fragment of rows in device memory, which ends as its transpose does.
inline void load_fragment(thread operand_fragment& loaded, device const element* rows, long pitch, int last, int columns,
                          int lane_row, int lane_column) {
  device const element* source = rows + min(lane_row, last) * pitch + lane_column;
  loaded.thread_elements()[0] = lane_column < columns ? operand(source[0]) : operand(0.0f);
  loaded.thread_elements()[1] = lane_column + 1 < columns ? operand(source[1]) : operand(0.0f);
}
// The transpose of an 8x8 fragment of rows in device memory. Rows past the last repeat it, they are masked later or not
// stored; columns from `columns` on are zeros.
inline void load_transposed(thread operand_fragment& loaded, device const element* rows, long pitch, int last,
                            int columns, int lane_row, int lane_column) {
  const bool inside = lane_row < columns;
  loaded.thread_elements()[0] = inside ? operand(rows[min(lane_column, last) * pitch + lane_row]) : operand(0.0f);
  loaded.thread_elements()[1] = inside ? operand(rows[min(lane_column + 1, last) * pitch + lane_row]) : operand(0.0f);
}

constant constexpr int BLOCKS = 1;  // of 8 streamed rows, whose products are made together

inline void clear(thread sum_fragment (&sums)[BLOCKS][ROW_FRAGMENTS]) {
  #pragma clang loop unroll(full)
  for (int b = 0; b < BLOCKS; b++) {
    #pragma clang loop unroll(full)
    for (int i = 0; i < ROW_FRAGMENTS; i++) {
      sums[b][i] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
  }
}

// score = own_qk * streamed qk rows^T and grad_weight the same of v, for each block.
inline void multiply(thread sum_fragment (&score)[BLOCKS][ROW_FRAGMENTS],
                     thread sum_fragment (&grad_weight)[BLOCKS][ROW_FRAGMENTS],
                     thread operand_fragment (&own_qk)[ROW_FRAGMENTS][8], device const element* qk_rows, long qk_pitch,
                     thread operand_fragment (&own_v)[ROW_FRAGMENTS][8], device const element* v_rows, long v_pitch,
                     int last, int lane_row, int lane_column) {
  clear(score);
  clear(grad_weight);
  #pragma clang loop unroll(full)
  for (int d = 0; d < 8; d++) {
    #pragma clang loop unroll(full)
    for (int b = 0; b < BLOCKS; b++) {
      operand_fragment qk_fragment;
      load_transposed(qk_fragment, qk_rows + b * 8 * qk_pitch + d * 8, qk_pitch, last - b * 8, 64 - d * 8, lane_row, lane_column);
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        simdgroup_multiply_accumulate(score[b][i], own_qk[i][d], qk_fragment, score[b][i]);
      }
      operand_fragment v_fragment;
      load_transposed(v_fragment, v_rows + b * 8 * v_pitch + d * 8, v_pitch, last - b * 8, 64 - d * 8, lane_row, lane_column);
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        simdgroup_multiply_accumulate(grad_weight[b][i], own_v[i][d], v_fragment, grad_weight[b][i]);
      }
    }
  }
}

// sums += weights * streamed rows of 64 elements.
inline void add_products_64(thread sum_fragment (&sums)[ROW_FRAGMENTS][8],
                          thread operand_fragment (&weights)[BLOCKS][ROW_FRAGMENTS],
                          device const element* rows, long pitch, int last, int lane_row, int lane_column) {
  #pragma clang loop unroll(full)
  for (int b = 0; b < BLOCKS; b++) {
    #pragma clang loop unroll(full)
    for (int d = 0; d < 8; d++) {
      operand_fragment fragment_of_rows;
      load_fragment(fragment_of_rows, rows + b * 8 * pitch + d * 8, pitch, last - b * 8, 64 - d * 8, lane_row, lane_column);
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        simdgroup_multiply_accumulate(sums[i][d], weights[b][i], fragment_of_rows, sums[i][d]);
      }
    }
  }
}

// grad_q = scale * grad_score k, where grad_score = weight * (grad_out v^T - delta) and weight is the softmax.
// One simdgroup owns SIMDGROUP_ROWS query rows; keys are read straight from device memory in tiles. A row without a key gets 0.
// 0 bytes of threadgroup memory, about 304 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_backward_dq_f16_d64x64_u_s4r2t32d_v1(
    device const half* q [[buffer(0)]],
    device const half* k [[buffer(1)]],
    device const half* v [[buffer(2)]],
    device const half* grad_out [[buffer(3)]],
    device const float* logsumexp [[buffer(4)]],
    device const float* delta [[buffer(5)]],
    device half* grad_q [[buffer(6)]],
    constant long* params [[buffer(7)]],
    constant float& scale [[buffer(8)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
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
  const int first_row = block_first + int(simdgroup_index) * SIMDGROUP_ROWS;
  const int end_row = min(first_row + SIMDGROUP_ROWS, q_len);
  if (first_row >= q_len) {
    return;
  }
  const float factor = scale * M_LOG2E_F;

  operand_fragment query[ROW_FRAGMENTS][QK_FRAGMENTS];
  operand_fragment grad[ROW_FRAGMENTS][V_FRAGMENTS];
  sum_fragment sums[ROW_FRAGMENTS][QK_FRAGMENTS];
  float shift[ROW_FRAGMENTS];
  float row_delta[ROW_FRAGMENTS];
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    const int row = first_row + i * 8 + lane_row;
    load_row_64(query[i], q, q_row_stride, row, q_len, lane_column);
    load_row_64(grad[i], grad_out, grad_out_row_stride, row, q_len, lane_column);
    shift[i] = row < q_len ? shift_of(logsumexp[row]) : ROW_UNSEEN;
    row_delta[i] = row < q_len ? delta[row] : 0.0f;
    #pragma clang loop unroll(full)
    for (int d = 0; d < 8; d++) {
      sums[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
  }

  const int first_key = 0;
  const int end_key = clamp(end_row + upper, 0, kv_len);

  for (int key = first_key; key < end_key; key += TILE) {
    const bool cut = key + TILE > kv_len || key + TILE - 1 - first_row > upper;

    #pragma clang loop unroll(disable)
    for (int j = 0; j < TILE_FRAGMENTS; j += BLOCKS) {
      device const element* key_rows = k + (key + j * 8) * k_row_stride;
      device const element* value_rows = v + (key + j * 8) * v_row_stride;
      const int last = kv_len - 1 - key - j * 8;
      sum_fragment score[BLOCKS][ROW_FRAGMENTS];
      sum_fragment grad_weight[BLOCKS][ROW_FRAGMENTS];
      multiply(score, grad_weight, query, key_rows, k_row_stride, grad, value_rows, v_row_stride, last, lane_row, lane_column);
      operand_fragment grad_score[BLOCKS][ROW_FRAGMENTS];
      #pragma clang loop unroll(full)
      for (int b = 0; b < BLOCKS; b++) {
        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          #pragma clang loop unroll(full)
          for (int e = 0; e < 2; e++) {
            const float weight = weight_of(score[b][i].thread_elements()[e], factor, shift[i]);
            float gradient = weight * (grad_weight[b][i].thread_elements()[e] - row_delta[i]);
            if (cut) {
              const int row = first_row + i * 8 + lane_row;
              const int column = key + (j + b) * 8 + lane_column + e;
              const bool seen = column < kv_len && column - row <= upper;
              gradient = seen ? gradient : 0.0f;
            }
            grad_score[b][i].thread_elements()[e] = operand(gradient);
          }
        }
      }
      add_products_64(sums, grad_score, key_rows, k_row_stride, last, lane_row, lane_column);
    }
  }

  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    store_row_64(grad_q, grad_q_row_stride, sums[i], scale, first_row + i * 8 + lane_row, q_len, lane_column);
  }
}

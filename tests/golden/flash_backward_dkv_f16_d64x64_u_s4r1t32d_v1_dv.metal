#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

typedef half element;
typedef half operand;  // what the operands of a product hold; sums are float
typedef simdgroup_matrix<operand, 8, 8> operand_fragment;
typedef simdgroup_matrix<float, 8, 8> sum_fragment;

constant constexpr int SIMDGROUPS = 4;
constant constexpr int THREADS = 128;
constant constexpr int ROW_FRAGMENTS = 1;  // 8-row fragments that a simdgroup owns
constant constexpr int SIMDGROUP_ROWS = 8;
constant constexpr int BLOCK_ROWS = 32;  // rows that a threadgroup owns
constant constexpr int TILE = 32;  // rows of the other side, staged at a time
constant constexpr int TILE_FRAGMENTS = 4;
constant constexpr int QK_FRAGMENTS = 8;
constant constexpr int V_FRAGMENTS = 8;
constant constexpr int STATISTICS = 1;  // queries of a tile whose row statistics one lane has
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

// score = own_qk * streamed qk rows^T, for each block.
inline void multiply(thread sum_fragment (&score)[BLOCKS][ROW_FRAGMENTS],
                     thread operand_fragment (&own_qk)[ROW_FRAGMENTS][8], device const element* qk_rows, long qk_pitch,
                     int last, int lane_row, int lane_column) {
  clear(score);
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

// A number of query `at` of the tile, which one lane has.
inline float of_query(thread const float (&numbers)[STATISTICS], int at) {
  return simd_shuffle(numbers[0], ushort(at));
}

// grad_v = weight^T grad_out, summed over the query heads that share a key head.
// One simdgroup owns SIMDGROUP_ROWS keys; query rows are read straight from device memory in tiles. A key that nobody sees gets 0.
// 0 bytes of threadgroup memory, about 112 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_backward_dkv_f16_d64x64_u_s4r1t32d_v1_dv(
    device const half* q [[buffer(0)]],
    device const half* k [[buffer(1)]],
    device const half* grad_out [[buffer(2)]],
    device const float* logsumexp [[buffer(3)]],
    device half* grad_v [[buffer(4)]],
    constant long* params [[buffer(5)]],
    constant float& scale [[buffer(6)]],
    uint3 group [[threadgroup_position_in_grid]],
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
  const long grad_out_batch_stride = long(params[12]);
  const long grad_out_head_stride = long(params[13]);
  const long grad_out_row_stride = long(params[14]);
  const long grad_v_batch_stride = long(params[15]);
  const long grad_v_head_stride = long(params[16]);
  const long grad_v_row_stride = long(params[17]);
  // Heads are the fastest axis of the grid.
  const long batch = group.z;
  const int block = int(group.y);
  // This lane's two elements of an 8x8 fragment: row bits are lane bits 4 2 1, column bits 3 and 0.
  const int lane_row = int(((lane >> 2) & 4u) | ((lane >> 1) & 3u));
  const int lane_column = int(((lane >> 1) & 4u) | ((lane << 1) & 2u));
  const long kv_head = group.x;
  const int sharing = heads / kv_heads;  // query heads that read this key head
  const long first_head = kv_head * sharing;
  q += batch * q_batch_stride + first_head * q_head_stride;
  k += batch * k_batch_stride + kv_head * k_head_stride;
  grad_out += batch * grad_out_batch_stride + first_head * grad_out_head_stride;
  grad_v += batch * grad_v_batch_stride + kv_head * grad_v_head_stride;
  logsumexp += (batch * heads + first_head) * q_len;
  const int block_first = block * BLOCK_ROWS;
  const int first_key = block_first + int(simdgroup_index) * SIMDGROUP_ROWS;
  const int end_key = min(first_key + SIMDGROUP_ROWS, kv_len);
  if (first_key >= kv_len) {
    return;
  }
  const float factor = scale * M_LOG2E_F;

  operand_fragment own_key[ROW_FRAGMENTS][QK_FRAGMENTS];
  sum_fragment value_sums[ROW_FRAGMENTS][V_FRAGMENTS];
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    load_row_64(own_key[i], k, k_row_stride, first_key + i * 8 + lane_row, kv_len, lane_column);
    #pragma clang loop unroll(full)
    for (int d = 0; d < V_FRAGMENTS; d++) {
      value_sums[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
  }

  const int first_row = clamp(first_key - upper, 0, q_len) / TILE * TILE;
  const int end_row = q_len;
  // The tiles of all the heads that share this key head, one head after the other.
  const int steps = end_row > first_row ? sharing * ((end_row - first_row + TILE - 1) / TILE) : 0;
  float lane_shift[STATISTICS];

  for (int step = 0, row = first_row; step < steps; step++, row = row + TILE < end_row ? row + TILE : first_row) {
    #pragma clang loop unroll(full)
    for (int n = 0; n < STATISTICS; n++) {
      const int query = n * 32 + int(lane);
      const bool inside = row + query < q_len;
      lane_shift[n] = inside ? shift_of(logsumexp[row + query]) : ROW_UNSEEN;
    }
    const int tile_end = min(row + TILE, q_len);
    // Keys past the end need no mask: each only makes its own gradients, which are not stored.
    const bool cut = row + TILE > q_len || end_key - 1 - row > upper;

    #pragma clang loop unroll(disable)
    for (int j = 0; j < TILE_FRAGMENTS; j += BLOCKS) {
      device const element* query_rows = q + (row + j * 8) * q_row_stride;
      device const element* grad_rows = grad_out + (row + j * 8) * grad_out_row_stride;
      const int last = q_len - 1 - row - j * 8;
      sum_fragment score[BLOCKS][ROW_FRAGMENTS];
      multiply(score, own_key, query_rows, q_row_stride, last, lane_row, lane_column);

      // Fragments are [keys x queries] here: a lane's two elements are two queries of one key.
      operand_fragment weight[BLOCKS][ROW_FRAGMENTS];
      #pragma clang loop unroll(full)
      for (int b = 0; b < BLOCKS; b++) {
        const float2 shift = float2(of_query(lane_shift, (j + b) * 8 + lane_column), of_query(lane_shift, (j + b) * 8 + lane_column + 1));

        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          #pragma clang loop unroll(full)
          for (int e = 0; e < 2; e++) {
            float exponential = weight_of(score[b][i].thread_elements()[e], factor, shift[e]);
            if (cut) {
              const int key = first_key + i * 8 + lane_row;
              const int query_row = row + (j + b) * 8 + lane_column + e;
              const bool seen = query_row < q_len && key - query_row <= upper;
              exponential = seen ? exponential : 0.0f;
            }
            weight[b][i].thread_elements()[e] = operand(exponential);
          }
        }
      }
      add_products_64(value_sums, weight, grad_rows, grad_out_row_stride, last, lane_row, lane_column);
    }
    if (row + TILE >= end_row) {
      q += q_head_stride;
      grad_out += grad_out_head_stride;
      logsumexp += q_len;
    }
  }

  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    const int key = first_key + i * 8 + lane_row;
    store_row_64(grad_v, grad_v_row_stride, value_sums[i], 1.0f, key, kv_len, lane_column);
  }
}

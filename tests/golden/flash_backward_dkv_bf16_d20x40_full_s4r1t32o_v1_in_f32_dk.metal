#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

typedef bfloat element;
typedef float operand;  // what the operands of a product hold; sums are float
typedef simdgroup_matrix<operand, 8, 8> operand_fragment;
typedef simdgroup_matrix<float, 8, 8> sum_fragment;

constant constexpr int SIMDGROUPS = 4;
constant constexpr int THREADS = 128;
constant constexpr int ROW_FRAGMENTS = 1;  // 8-row fragments that a simdgroup owns
constant constexpr int SIMDGROUP_ROWS = 8;
constant constexpr int BLOCK_ROWS = 32;  // rows that a threadgroup owns
constant constexpr int TILE = 32;  // rows of the other side, staged at a time
constant constexpr int TILE_FRAGMENTS = 4;
constant constexpr int QK_FRAGMENTS = 3;
constant constexpr int V_FRAGMENTS = 5;
constant constexpr int STATISTICS = 1;  // queries of a tile whose row statistics one lane has
constant constexpr int QK_PITCH = 32;  // elements from one staged row to the next
constant constexpr int V_PITCH = 48;

// A row that sees nothing: exp2(score - ROW_UNSEEN) is 0, without an infinity that fast math may not know.
constant constexpr float ROW_UNSEEN = 1.7e+38f;

// Scores and shifts in the log2 domain: `factor` is the scale times log2(e).
inline float shift_of(float logsumexp) {
  return logsumexp < -ROW_UNSEEN ? ROW_UNSEEN : logsumexp * M_LOG2E_F;
}
inline float weight_of(float score, float factor, float shift) {
  return fast::exp2(fma(score, factor, -shift));
}

// Copies rows [first, first + TILE) of 20 elements into a tile; what lies past the end, and past a row, becomes zeros.
inline void stage_20(device const element* source, long row_stride, int first, int rows,
                     threadgroup element* tile, int pitch, int thread_index) {
  constexpr int UNITS = 24;
  #pragma clang loop unroll(full)
  for (int n = 0; n < 6; n++) {
    const int i = n * THREADS + thread_index;
    const int row = i / UNITS;
    const int column = (i - row * UNITS) * 1;
    const bool inside = first + row < rows && column < 20;
    tile[row * pitch + column] = inside ? source[(first + row) * row_stride + column] : element(0.0f);
  }
}

// Copies rows [first, first + TILE) of 40 elements into a tile; rows past the end become zeros.
inline void stage_40(device const element* source, long row_stride, int first, int rows,
                     threadgroup element* tile, int pitch, int thread_index) {
  constexpr int UNITS = 40;
  #pragma clang loop unroll(full)
  for (int n = 0; n < 10; n++) {
    const int i = n * THREADS + thread_index;
    const int row = i / UNITS;
    const int column = (i - row * UNITS) * 1;
    const bool inside = first + row < rows;
    tile[row * pitch + column] = inside ? source[(first + row) * row_stride + column] : element(0.0f);
  }
}

// Sums into one row: multiplied by `factor` in float, then rounded once.
inline void store_row_20(device element* target, long row_stride, thread sum_fragment (&own)[3], float factor,
                         int row, int rows, int lane_column) {
  if (row >= rows) {
    return;
  }
  #pragma clang loop unroll(full)
  for (int d = 0; d < 3; d++) {
    const int column = d * 8 + lane_column;
    const long at = row * row_stride + column;
    if (column < 20) {
      target[at] = element(own[d].thread_elements()[0] * factor);
    }
    if (column + 1 < 20) {
      target[at + 1] = element(own[d].thread_elements()[1] * factor);
    }
  }
}

// Sums into one row: multiplied by `factor` in float, then rounded once.
inline void store_row_40(device element* target, long row_stride, thread sum_fragment (&own)[5], float factor,
                         int row, int rows, int lane_column) {
  if (row >= rows) {
    return;
  }
  #pragma clang loop unroll(full)
  for (int d = 0; d < 5; d++) {
    const int column = d * 8 + lane_column;
    const long at = row * row_stride + column;
    target[at] = element(own[d].thread_elements()[0] * factor);
    target[at + 1] = element(own[d].thread_elements()[1] * factor);
  }
}

// An 8x8 fragment of a tile.
inline void load_fragment(thread operand_fragment& loaded, threadgroup const element* tile, int pitch,
                          int lane_row, int lane_column) {
  loaded.thread_elements()[0] = operand(tile[lane_row * pitch + lane_column]);
  loaded.thread_elements()[1] = operand(tile[lane_row * pitch + lane_column + 1]);
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

// score = streamed qk rows * own_qk^T and grad_weight the same of v, for each block.
inline void multiply(thread sum_fragment (&score)[BLOCKS][ROW_FRAGMENTS],
                     thread sum_fragment (&grad_weight)[BLOCKS][ROW_FRAGMENTS],
                     thread operand_fragment (&own_qk)[ROW_FRAGMENTS][3], threadgroup const element* qk_rows,
                     thread operand_fragment (&own_v)[ROW_FRAGMENTS][5], threadgroup const element* v_rows,
                     thread operand_fragment (&kept_qk)[BLOCKS][3],
                     int lane_row, int lane_column) {
  clear(score);
  clear(grad_weight);
  #pragma clang loop unroll(full)
  for (int d = 0; d < 5; d++) {
    #pragma clang loop unroll(full)
    for (int b = 0; b < BLOCKS; b++) {
      if (d < 3) {
        load_fragment(kept_qk[b][d], qk_rows + b * 8 * QK_PITCH + d * 8, QK_PITCH, lane_row, lane_column);
        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          simdgroup_multiply_accumulate(score[b][i], kept_qk[b][d], own_qk[i][d], score[b][i]);
        }
      }
      operand_fragment v_fragment;
      load_fragment(v_fragment, v_rows + b * 8 * V_PITCH + d * 8, V_PITCH, lane_row, lane_column);
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        simdgroup_multiply_accumulate(grad_weight[b][i], v_fragment, own_v[i][d], grad_weight[b][i]);
      }
    }
  }
}

// sums += weights * streamed rows of 20 elements.
inline void add_products_20(thread sum_fragment (&sums)[ROW_FRAGMENTS][3],
                          thread operand_fragment (&weights)[BLOCKS][ROW_FRAGMENTS],
                          thread operand_fragment (&kept)[BLOCKS][3]) {
  #pragma clang loop unroll(full)
  for (int b = 0; b < BLOCKS; b++) {
    #pragma clang loop unroll(full)
    for (int d = 0; d < 3; d++) {
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        simdgroup_multiply_accumulate(sums[i][d], weights[b][i], kept[b][d], sums[i][d]);
      }
    }
  }
}

// The transposed fragment, by shuffles: row bits are lane bits 4 2 1, column bits are lane bits 3 0 and the element.
inline void transpose(thread operand_fragment& weights, uint lane) {
  const ushort source = ushort(((lane & 8u) << 1) | ((lane & 16u) >> 1) | ((lane & 1u) << 2) | ((lane & 4u) >> 2));
  const bool high = (lane & 2u) != 0u;
  const float low_0 = simd_shuffle(weights.thread_elements()[0], source);
  const float high_0 = simd_shuffle(weights.thread_elements()[1], source);
  const float low_1 = simd_shuffle(weights.thread_elements()[0], ushort(source | 2));
  const float high_1 = simd_shuffle(weights.thread_elements()[1], ushort(source | 2));
  weights.thread_elements()[0] = operand(high ? high_0 : low_0);
  weights.thread_elements()[1] = operand(high ? high_1 : low_1);
}

// A number of query `at` of the tile, which one lane has.
inline float of_query(thread const float (&numbers)[STATISTICS], int at) {
  return simd_shuffle(numbers[0], ushort(at));
}

// grad_k = scale * grad_score^T q, summed over the query heads that share a key head.
// One simdgroup owns SIMDGROUP_ROWS keys; query rows stream by in tiles. A key that nobody sees gets 0.
// 5120 bytes of threadgroup memory, about 136 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_backward_dkv_bf16_d20x40_full_s4r1t32o_v1_in_f32_dk(
    device const bfloat* q [[buffer(0)]],
    device const bfloat* k [[buffer(1)]],
    device const bfloat* v [[buffer(2)]],
    device const bfloat* grad_out [[buffer(3)]],
    device const float* logsumexp [[buffer(4)]],
    device const float* delta [[buffer(5)]],
    device bfloat* grad_k [[buffer(6)]],
    constant long* params [[buffer(7)]],
    constant float& scale [[buffer(8)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup bfloat query_tile[1024];
  threadgroup bfloat grad_tile[1536];
  const int heads = int(params[1]);
  const int kv_heads = int(params[2]);
  const int q_len = int(params[3]);
  const int kv_len = int(params[4]);
  const long q_batch_stride = long(params[5]);
  const long q_head_stride = long(params[6]);
  const long q_row_stride = long(params[7]);
  const long k_batch_stride = long(params[8]);
  const long k_head_stride = long(params[9]);
  const long k_row_stride = long(params[10]);
  const long v_batch_stride = long(params[11]);
  const long v_head_stride = long(params[12]);
  const long v_row_stride = long(params[13]);
  const long grad_out_batch_stride = long(params[14]);
  const long grad_out_head_stride = long(params[15]);
  const long grad_out_row_stride = long(params[16]);
  const long grad_k_batch_stride = long(params[17]);
  const long grad_k_head_stride = long(params[18]);
  const long grad_k_row_stride = long(params[19]);
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
  v += batch * v_batch_stride + kv_head * v_head_stride;
  grad_out += batch * grad_out_batch_stride + first_head * grad_out_head_stride;
  grad_k += batch * grad_k_batch_stride + kv_head * grad_k_head_stride;
  logsumexp += (batch * heads + first_head) * q_len;
  delta += (batch * heads + first_head) * q_len;
  const int block_first = block * BLOCK_ROWS;
  const int block_end = min(block_first + BLOCK_ROWS, kv_len);
  const int first_key = block_first + int(simdgroup_index) * SIMDGROUP_ROWS;
  const int end_key = min(first_key + SIMDGROUP_ROWS, kv_len);
  const float factor = scale * M_LOG2E_F;

  operand_fragment own_key[ROW_FRAGMENTS][QK_FRAGMENTS];
  operand_fragment own_value[ROW_FRAGMENTS][V_FRAGMENTS];
  sum_fragment key_sums[ROW_FRAGMENTS][QK_FRAGMENTS];
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    // Owned rows are right operands.
    #pragma clang loop unroll(full)
    for (int d = 0; d < QK_FRAGMENTS; d++) {
      load_transposed(own_key[i][d], k + (first_key + i * 8) * k_row_stride + d * 8, k_row_stride,
                      kv_len - 1 - first_key - i * 8, 20 - d * 8, lane_row, lane_column);
    }
    #pragma clang loop unroll(full)
    for (int d = 0; d < V_FRAGMENTS; d++) {
      load_transposed(own_value[i][d], v + (first_key + i * 8) * v_row_stride + d * 8, v_row_stride,
                      kv_len - 1 - first_key - i * 8, 40 - d * 8, lane_row, lane_column);
    }
    #pragma clang loop unroll(full)
    for (int d = 0; d < QK_FRAGMENTS; d++) {
      key_sums[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
  }

  const int first_row = 0;
  const int end_row = q_len;
  // The tiles of all the heads that share this key head, one head after the other.
  const int steps = end_row > first_row ? sharing * ((end_row - first_row + TILE - 1) / TILE) : 0;
  float lane_shift[STATISTICS];
  float lane_delta[STATISTICS];

  for (int step = 0, row = first_row; step < steps; step++, row = row + TILE < end_row ? row + TILE : first_row) {
    threadgroup element* queries = query_tile;
    threadgroup element* grads = grad_tile;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_20(q, q_row_stride, row, q_len, queries, QK_PITCH, int(thread_index));
    stage_40(grad_out, grad_out_row_stride, row, q_len, grads, V_PITCH, int(thread_index));
    #pragma clang loop unroll(full)
    for (int n = 0; n < STATISTICS; n++) {
      const int query = n * 32 + int(lane);
      const bool inside = row + query < q_len;
      lane_shift[n] = inside ? shift_of(logsumexp[row + query]) : ROW_UNSEEN;
      lane_delta[n] = inside ? delta[row + query] : 0.0f;
    }
    if (row + TILE >= end_row) {
      q += q_head_stride;
      grad_out += grad_out_head_stride;
      logsumexp += q_len;
      delta += q_len;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    const int tile_end = min(row + TILE, q_len);
    if (first_key >= end_key) {
      continue;
    }
    // Keys past the end need no mask: each only makes its own gradients, which are not stored.
    const bool cut = row + TILE > q_len;

    #pragma clang loop unroll(disable)
    for (int j = 0; j < TILE_FRAGMENTS; j += BLOCKS) {
      threadgroup const element* query_rows = queries + j * 8 * QK_PITCH;
      threadgroup const element* grad_rows = grads + j * 8 * V_PITCH;
      sum_fragment score[BLOCKS][ROW_FRAGMENTS];
      sum_fragment grad_weight[BLOCKS][ROW_FRAGMENTS];
      operand_fragment kept_queries[BLOCKS][QK_FRAGMENTS];
      multiply(score, grad_weight, own_key, query_rows, own_value, grad_rows, kept_queries, lane_row, lane_column);

      // Fragments are [queries x keys] until they are transposed.
      operand_fragment grad_score[BLOCKS][ROW_FRAGMENTS];
      #pragma clang loop unroll(full)
      for (int b = 0; b < BLOCKS; b++) {
        const float shift = of_query(lane_shift, (j + b) * 8 + lane_row);
        const float row_delta = of_query(lane_delta, (j + b) * 8 + lane_row);

        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          #pragma clang loop unroll(full)
          for (int e = 0; e < 2; e++) {
            float exponential = weight_of(score[b][i].thread_elements()[e], factor, shift);
            float gradient = exponential * (grad_weight[b][i].thread_elements()[e] - row_delta);
            if (cut) {
              const int query_row = row + (j + b) * 8 + lane_row;
              const bool seen = query_row < q_len;
              gradient = seen ? gradient : 0.0f;
            }
            grad_score[b][i].thread_elements()[e] = operand(gradient);
          }
          transpose(grad_score[b][i], lane);
        }
      }
      add_products_20(key_sums, grad_score, kept_queries);
    }
  }

  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    const int key = first_key + i * 8 + lane_row;
    store_row_20(grad_k, grad_k_row_stride, key_sums[i], scale, key, kv_len, lane_column);
  }
}

#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

typedef bfloat element;
typedef float operand;  // what the operands of a product hold; sums are float
typedef simdgroup_matrix<operand, 8, 8> operand_fragment;
typedef simdgroup_matrix<float, 8, 8> sum_fragment;

constant constexpr int SIMDGROUPS = 8;
constant constexpr int THREADS = 256;
constant constexpr int ROW_FRAGMENTS = 1;  // 8-row fragments that a simdgroup owns
constant constexpr int SIMDGROUP_ROWS = 8;
constant constexpr int BLOCK_ROWS = 64;  // rows that a threadgroup owns
constant constexpr int TILE = 32;  // rows of the other side, staged at a time
constant constexpr int TILE_FRAGMENTS = 4;
constant constexpr int QK_FRAGMENTS = 9;
constant constexpr int V_FRAGMENTS = 4;
constant constexpr int QK_PITCH = 80;  // elements from one staged row to the next
constant constexpr int V_PITCH = 40;

// A row that sees nothing: exp2(score - ROW_UNSEEN) is 0, without an infinity that fast math may not know.
constant constexpr float ROW_UNSEEN = 1.7e+38f;

// Scores and shifts in the log2 domain: `factor` is the scale times log2(e).
inline float shift_of(float logsumexp) {
  return logsumexp < -ROW_UNSEEN ? ROW_UNSEEN : logsumexp * M_LOG2E_F;
}
inline float weight_of(float score, float factor, float shift) {
  return fast::exp2(fma(score, factor, -shift));
}

// Copies rows [first, first + TILE) of 32 elements into a tile; rows past the end become zeros.
inline void stage_32(device const element* source, long row_stride, int first, int rows,
                     threadgroup element* tile, int pitch, int thread_index) {
  constexpr int UNITS = 32;
  #pragma clang loop unroll(full)
  for (int n = 0; n < 4; n++) {
    const int i = n * THREADS + thread_index;
    const int row = i / UNITS;
    const int column = (i - row * UNITS) * 1;
    const bool inside = first + row < rows;
    tile[row * pitch + column] = inside ? source[(first + row) * row_stride + column] : element(0.0f);
  }
}

// Copies rows [first, first + TILE) of 72 elements into a tile; rows past the end become zeros.
inline void stage_72(device const element* source, long row_stride, int first, int rows,
                     threadgroup element* tile, int pitch, int thread_index) {
  constexpr int UNITS = 72;
  #pragma clang loop unroll(full)
  for (int n = 0; n < 9; n++) {
    const int i = n * THREADS + thread_index;
    const int row = i / UNITS;
    const int column = (i - row * UNITS) * 1;
    const bool inside = first + row < rows;
    tile[row * pitch + column] = inside ? source[(first + row) * row_stride + column] : element(0.0f);
  }
}

// Sums into one row: multiplied by `factor` in float, then rounded once.
inline void store_row_32(device element* target, long row_stride, thread sum_fragment (&own)[4], float factor,
                         int row, int rows, int lane_column) {
  if (row >= rows) {
    return;
  }
  #pragma clang loop unroll(full)
  for (int d = 0; d < 4; d++) {
    const int column = d * 8 + lane_column;
    const long at = row * row_stride + column;
    target[at] = element(own[d].thread_elements()[0] * factor);
    target[at + 1] = element(own[d].thread_elements()[1] * factor);
  }
}

// Sums into one row: multiplied by `factor` in float, then rounded once.
inline void store_row_72(device element* target, long row_stride, thread sum_fragment (&own)[9], float factor,
                         int row, int rows, int lane_column) {
  if (row >= rows) {
    return;
  }
  #pragma clang loop unroll(full)
  for (int d = 0; d < 9; d++) {
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
                     thread operand_fragment (&own_qk)[ROW_FRAGMENTS][9], threadgroup const element* qk_rows,
                     thread operand_fragment (&own_v)[ROW_FRAGMENTS][4], threadgroup const element* v_rows,
                     thread operand_fragment (&kept_qk)[BLOCKS][9],
                     int lane_row, int lane_column) {
  clear(score);
  clear(grad_weight);
  #pragma clang loop unroll(full)
  for (int d = 0; d < 9; d++) {
    #pragma clang loop unroll(full)
    for (int b = 0; b < BLOCKS; b++) {
      load_fragment(kept_qk[b][d], qk_rows + b * 8 * QK_PITCH + d * 8, QK_PITCH, lane_row, lane_column);
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        simdgroup_multiply_accumulate(score[b][i], kept_qk[b][d], own_qk[i][d], score[b][i]);
      }
      if (d < 4) {
        operand_fragment v_fragment;
        load_fragment(v_fragment, v_rows + b * 8 * V_PITCH + d * 8, V_PITCH, lane_row, lane_column);
        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          simdgroup_multiply_accumulate(grad_weight[b][i], v_fragment, own_v[i][d], grad_weight[b][i]);
        }
      }
    }
  }
}

// sums += weights * streamed rows of 72 elements.
inline void add_products_72(thread sum_fragment (&sums)[ROW_FRAGMENTS][9],
                          thread operand_fragment (&weights)[BLOCKS][ROW_FRAGMENTS],
                          thread operand_fragment (&kept)[BLOCKS][9]) {
  #pragma clang loop unroll(full)
  for (int b = 0; b < BLOCKS; b++) {
    #pragma clang loop unroll(full)
    for (int d = 0; d < 9; d++) {
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

constant constexpr int MASK_WORDS = 1;

// Bit n of `live`: key first + n exists and its key_mask is true. Returns whether any bit is set.
inline bool live_keys(thread uint (&live)[MASK_WORDS], device const bool* key_mask, long key_stride, int first,
                      int kv_len, uint lane) {
  uint any = 0u;
  #pragma clang loop unroll(full)
  for (int word = 0; word < MASK_WORDS; word++) {
    const int key = first + word * 32 + int(lane);
    live[word] = simd_or(key < kv_len && key_mask[key * key_stride] ? 1u << lane : 0u);
    any |= live[word];
  }
  return any != 0u;
}

// Whether all 32 keys are live: then nothing is to be masked.
inline bool all_live(thread const uint (&live)[MASK_WORDS]) {
  return live[0] == 0xffffffffu;
}

// Key `at` of the tile, in the eight keys from 8 * j: a word is chosen when the text is compiled.
inline bool is_live(thread const uint (&live)[MASK_WORDS], int j, int at) {
  return (live[0] >> uint(at % 32) & 1u) != 0u;
}

// grad_q = scale * grad_score k, where grad_score = weight * (grad_out v^T - delta) and weight is the softmax.
// One simdgroup owns SIMDGROUP_ROWS query rows; keys stream by in tiles. A row without a key gets 0.
// 7680 bytes of threadgroup memory, about 280 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(256)]]
kernel void flash_backward_dq_bf16_d72x32_lu_km_s8r1t32o_v1_in_f32(
    device const bfloat* q [[buffer(0)]],
    device const bfloat* k [[buffer(1)]],
    device const bfloat* v [[buffer(2)]],
    device const bfloat* grad_out [[buffer(3)]],
    device const float* logsumexp [[buffer(4)]],
    device const float* delta [[buffer(5)]],
    device const bool* key_mask [[buffer(6)]],
    device bfloat* grad_q [[buffer(7)]],
    constant long* params [[buffer(8)]],
    constant float& scale [[buffer(9)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup bfloat key_tile[2560];
  threadgroup bfloat value_tile[1280];
  const int heads = int(params[1]);
  const int kv_heads = int(params[2]);
  const int q_len = int(params[3]);
  const int kv_len = int(params[4]);
  const int lower = int(params[5]);
  const int upper = int(params[6]);
  const long q_batch_stride = long(params[7]);
  const long q_head_stride = long(params[8]);
  const long q_row_stride = long(params[9]);
  const long k_batch_stride = long(params[10]);
  const long k_head_stride = long(params[11]);
  const long k_row_stride = long(params[12]);
  const long v_batch_stride = long(params[13]);
  const long v_head_stride = long(params[14]);
  const long v_row_stride = long(params[15]);
  const long grad_out_batch_stride = long(params[16]);
  const long grad_out_head_stride = long(params[17]);
  const long grad_out_row_stride = long(params[18]);
  const long key_mask_batch_stride = long(params[19]);
  const long key_mask_key_stride = long(params[20]);
  const long grad_q_batch_stride = long(params[21]);
  const long grad_q_head_stride = long(params[22]);
  const long grad_q_row_stride = long(params[23]);
  // Heads are the fastest axis of the grid.
  const long batch = group.z;
  const int block = int(group.y);
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
  key_mask += batch * key_mask_batch_stride;
  const int block_first = block * BLOCK_ROWS;
  const int block_end = min(block_first + BLOCK_ROWS, q_len);
  const int first_row = block_first + int(simdgroup_index) * SIMDGROUP_ROWS;
  const int end_row = min(first_row + SIMDGROUP_ROWS, q_len);
  const float factor = scale * M_LOG2E_F;

  operand_fragment query[ROW_FRAGMENTS][QK_FRAGMENTS];
  operand_fragment grad[ROW_FRAGMENTS][V_FRAGMENTS];
  sum_fragment sums[ROW_FRAGMENTS][QK_FRAGMENTS];
  float shift[ROW_FRAGMENTS][2];
  float row_delta[ROW_FRAGMENTS][2];
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    // Owned rows are right operands.
    #pragma clang loop unroll(full)
    for (int d = 0; d < QK_FRAGMENTS; d++) {
      load_transposed(query[i][d], q + (first_row + i * 8) * q_row_stride + d * 8, q_row_stride,
                      q_len - 1 - first_row - i * 8, 72 - d * 8, lane_row, lane_column);
    }
    #pragma clang loop unroll(full)
    for (int d = 0; d < V_FRAGMENTS; d++) {
      load_transposed(grad[i][d], grad_out + (first_row + i * 8) * grad_out_row_stride + d * 8, grad_out_row_stride,
                      q_len - 1 - first_row - i * 8, 32 - d * 8, lane_row, lane_column);
    }
    #pragma clang loop unroll(full)
    for (int e = 0; e < 2; e++) {
      const int row = first_row + i * 8 + lane_column + e;
      shift[i][e] = row < q_len ? shift_of(logsumexp[row]) : ROW_UNSEEN;
      row_delta[i][e] = row < q_len ? delta[row] : 0.0f;
    }
    #pragma clang loop unroll(full)
    for (int d = 0; d < 9; d++) {
      sums[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
  }

  const int first_key = clamp(block_first + lower, 0, kv_len) / TILE * TILE;
  const int end_key = clamp(block_end + upper, 0, kv_len);

  for (int key = first_key; key < end_key; key += TILE) {
    uint live[MASK_WORDS];
    if (!live_keys(live, key_mask, key_mask_key_stride, key, kv_len, lane)) {
      continue;
    }
    threadgroup element* keys = key_tile;
    threadgroup element* values = value_tile;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_72(k, k_row_stride, key, kv_len, keys, QK_PITCH, int(thread_index));
    stage_32(v, v_row_stride, key, kv_len, values, V_PITCH, int(thread_index));
    threadgroup_barrier(mem_flags::mem_threadgroup);

    if (first_row >= end_row || key - end_row >= upper || key + TILE - first_row <= lower) {
      continue;
    }
    const bool cut = key + TILE > kv_len || !all_live(live) || key + TILE - 1 - first_row > upper || key - end_row + 1 < lower;

    #pragma clang loop unroll(disable)
    for (int j = 0; j < TILE_FRAGMENTS; j += BLOCKS) {
      threadgroup const element* key_rows = keys + j * 8 * QK_PITCH;
      threadgroup const element* value_rows = values + j * 8 * V_PITCH;
      sum_fragment score[BLOCKS][ROW_FRAGMENTS];
      sum_fragment grad_weight[BLOCKS][ROW_FRAGMENTS];
      operand_fragment kept_keys[BLOCKS][QK_FRAGMENTS];
      multiply(score, grad_weight, query, key_rows, grad, value_rows, kept_keys, lane_row, lane_column);
      operand_fragment grad_score[BLOCKS][ROW_FRAGMENTS];
      #pragma clang loop unroll(full)
      for (int b = 0; b < BLOCKS; b++) {
        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          #pragma clang loop unroll(full)
          for (int e = 0; e < 2; e++) {
            const float weight = weight_of(score[b][i].thread_elements()[e], factor, shift[i][e]);
            float gradient = weight * (grad_weight[b][i].thread_elements()[e] - row_delta[i][e]);
            if (cut) {
              const int row = first_row + i * 8 + lane_column + e;
              const int column = key + (j + b) * 8 + lane_row;
              const bool seen = column < kv_len && is_live(live, j + b, column - key) && column - row <= upper && column - row >= lower;
              gradient = seen ? gradient : 0.0f;
            }
            grad_score[b][i].thread_elements()[e] = operand(gradient);
          }
          transpose(grad_score[b][i], lane);
        }
      }
      add_products_72(sums, grad_score, kept_keys);
    }
  }

  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    store_row_72(grad_q, grad_q_row_stride, sums[i], scale, first_row + i * 8 + lane_row, q_len, lane_column);
  }
}

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
constant constexpr int TILE = 16;  // rows of the other side, staged at a time
constant constexpr int TILE_FRAGMENTS = 2;
constant constexpr int QK_FRAGMENTS = 16;
constant constexpr int V_FRAGMENTS = 16;
constant constexpr int QK_PART = 16;  // fragments of a row that a simdgroup has
constant constexpr int V_PART = 16;
constant constexpr int QK_PITCH = 136;  // elements from one staged row to the next
constant constexpr int V_PITCH = 136;

// Scaled scores live in the log2 domain.
constant constexpr float MASKED = -3.4e+38f;
constant constexpr float LEAST_MAXIMUM = -1.7e+38f;

// Copies rows [first, first + TILE) of 128 elements into a tile; rows past the end become zeros.
inline void stage_128(device const element* source, long row_stride, int first, int rows,
                     threadgroup element* tile, int pitch, int thread_index) {
  constexpr int UNITS = 16;
  #pragma clang loop unroll(full)
  for (int n = 0; n < 1; n++) {
    const int i = n * THREADS + thread_index;
    const int row = i / UNITS;
    const int column = (i - row * UNITS) * 8;
    const bool inside = first + row < rows;
    threadgroup uint4* target = (threadgroup uint4*)(tile + row * pitch + column);
    *target = inside ? *(device const uint4*)(source + (first + row) * row_stride + column) : uint4(0u);
  }
}

// One row of 128 elements into a fragment row: this lane takes two neighbouring elements of each fragment.
inline void load_row_128(thread operand_fragment (&own)[16], device const element* source, long row_stride,
                        int row, int rows, int lane_column) {
  #pragma clang loop unroll(full)
  for (int d = 0; d < 16; d++) {
    const int column = d * 8 + lane_column;
    const long at = row * row_stride + column;
    own[d].thread_elements()[0] = row < rows ? operand(source[at]) : operand(0.0f);
    own[d].thread_elements()[1] = row < rows ? operand(source[at + 1]) : operand(0.0f);
  }
}

// Sums into one row: multiplied by `factor` in float, then rounded once.
inline void store_row_128(device element* target, long row_stride, thread sum_fragment (&own)[16], float factor,
                         int row, int rows, int lane_column) {
  if (row >= rows) {
    return;
  }
  #pragma clang loop unroll(full)
  for (int d = 0; d < 16; d++) {
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
// The transpose of an 8x8 fragment of a tile.
inline void load_transposed(thread operand_fragment& loaded, threadgroup const element* tile, int pitch,
                            int lane_row, int lane_column) {
  loaded.thread_elements()[0] = operand(tile[lane_column * pitch + lane_row]);
  loaded.thread_elements()[1] = operand(tile[(lane_column + 1) * pitch + lane_row]);
}

// out = softmax(scale * q k^T) v over the keys of the band; logsumexp is the natural log of the softmax denominator.
// A row without a key is 0, its logsumexp -inf. One simdgroup owns SIMDGROUP_ROWS query rows; keys stream by in tiles.
// 8704 bytes of threadgroup memory, about 296 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(256)]]
kernel void flash_forward_bf16_d128x128_lu_s8r1t16_v8_in_f32_lse(
    device const bfloat* q [[buffer(0)]],
    device const bfloat* k [[buffer(1)]],
    device const bfloat* v [[buffer(2)]],
    device bfloat* out [[buffer(3)]],
    device float* logsumexp [[buffer(4)]],
    constant long* params [[buffer(5)]],
    constant float& scale [[buffer(6)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup bfloat key_tile[2176];
  threadgroup bfloat value_tile[2176];
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
  const long out_batch_stride = long(params[16]);
  const long out_head_stride = long(params[17]);
  const long out_row_stride = long(params[18]);
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
  out += batch * out_batch_stride + head * out_head_stride;
  logsumexp += (batch * heads + head) * q_len;
  const int block_first = block * BLOCK_ROWS;
  const int block_end = min(block_first + BLOCK_ROWS, q_len);
  const int first_row = block_first + int(simdgroup_index) * SIMDGROUP_ROWS;
  const int end_row = min(first_row + SIMDGROUP_ROWS, q_len);
  const float score_factor = abs(scale) * M_LOG2E_F;  // the sign goes into the queries

  operand_fragment query[ROW_FRAGMENTS][QK_PART];
  sum_fragment sums[ROW_FRAGMENTS][V_PART];
  float row_maximum[ROW_FRAGMENTS];
  float row_sum[ROW_FRAGMENTS];  // of this lane's columns; added up over lanes at the end
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    const int row = first_row + i * 8 + lane_row;
    load_row_128(query[i], q, q_row_stride, row, q_len, lane_column);
    if (scale < 0.0f) {
      #pragma clang loop unroll(full)
      for (int d = 0; d < QK_PART; d++) {
        query[i][d].thread_elements()[0] = operand(-float(query[i][d].thread_elements()[0]));
        query[i][d].thread_elements()[1] = operand(-float(query[i][d].thread_elements()[1]));
      }
    }
    row_maximum[i] = LEAST_MAXIMUM;
    row_sum[i] = 0.0f;
    #pragma clang loop unroll(full)
    for (int d = 0; d < V_PART; d++) {
      sums[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
  }

  const int first_key = clamp(block_first + lower, 0, kv_len) / TILE * TILE;
  const int end_key = clamp(block_end + upper, 0, kv_len);

  for (int key = first_key; key < end_key; key += TILE) {
    threadgroup element* keys = key_tile;
    threadgroup element* values = value_tile;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_128(k, k_row_stride, key, kv_len, keys, QK_PITCH, int(thread_index));
    stage_128(v, v_row_stride, key, kv_len, values, V_PITCH, int(thread_index));
    threadgroup_barrier(mem_flags::mem_threadgroup);

    if (first_row >= end_row || key - end_row >= upper || key + TILE - first_row <= lower) {
      continue;
    }

    sum_fragment score[ROW_FRAGMENTS][TILE_FRAGMENTS];
    #pragma clang loop unroll(full)
    for (int i = 0; i < ROW_FRAGMENTS; i++) {
      #pragma clang loop unroll(full)
      for (int j = 0; j < TILE_FRAGMENTS; j++) {
        score[i][j] = make_filled_simdgroup_matrix<float, 8>(0.0f);
      }
    }
    #pragma clang loop unroll(full)
    for (int d = 0; d < QK_PART; d++) {
      #pragma clang loop unroll(full)
      for (int j = 0; j < TILE_FRAGMENTS; j++) {
        operand_fragment key_fragment;
        load_transposed(key_fragment, keys + j * 8 * QK_PITCH + d * 8, QK_PITCH, lane_row, lane_column);
        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          simdgroup_multiply_accumulate(score[i][j], query[i][d], key_fragment, score[i][j]);
        }
      }
    }

    const bool cut = key + TILE > kv_len || key + TILE - 1 - first_row > upper || key - end_row + 1 < lower;
    operand_fragment weight[ROW_FRAGMENTS][TILE_FRAGMENTS];
    #pragma clang loop unroll(full)
    for (int i = 0; i < ROW_FRAGMENTS; i++) {
      const int row = first_row + i * 8 + lane_row;
      // Scores of an uncut tile are scaled within the exponential: the factor is not negative, so it keeps their order.
      float factor = score_factor;
      if (cut) {
        #pragma clang loop unroll(full)
        for (int j = 0; j < TILE_FRAGMENTS; j++) {
          #pragma clang loop unroll(full)
          for (int e = 0; e < 2; e++) {
            const int column = key + j * 8 + lane_column + e;
            const float scaled = score[i][j].thread_elements()[e] * factor;
            score[i][j].thread_elements()[e] = column < kv_len && column - row <= upper && column - row >= lower ? scaled : MASKED;
          }
        }
        factor = 1.0f;
      }
      float highest = score[i][0].thread_elements()[0];
      #pragma clang loop unroll(full)
      for (int j = 0; j < TILE_FRAGMENTS; j++) {
        highest = max(highest, max(score[i][j].thread_elements()[0], score[i][j].thread_elements()[1]));
      }
      // The four lanes of a row differ in lane bits 0 and 3.
      highest = max(highest, simd_shuffle_xor(highest, ushort(1)));
      highest = max(highest, simd_shuffle_xor(highest, ushort(8)));
      const float maximum = max(row_maximum[i], highest * factor);
      const float shrink = fast::exp2(row_maximum[i] - maximum);
      row_maximum[i] = maximum;
      float sum = row_sum[i] * shrink;
      #pragma clang loop unroll(full)
      for (int j = 0; j < TILE_FRAGMENTS; j++) {
        #pragma clang loop unroll(full)
        for (int e = 0; e < 2; e++) {
          const float exponential = fast::exp2(fma(score[i][j].thread_elements()[e], factor, -maximum));
          sum += exponential;
          weight[i][j].thread_elements()[e] = operand(exponential);
        }
      }
      row_sum[i] = sum;
      #pragma clang loop unroll(full)
      for (int d = 0; d < V_PART; d++) {
        sums[i][d].thread_elements()[0] *= shrink;
        sums[i][d].thread_elements()[1] *= shrink;
      }
    }

    #pragma clang loop unroll(full)
    for (int j = 0; j < TILE_FRAGMENTS; j++) {
      #pragma clang loop unroll(full)
      for (int d = 0; d < V_PART; d++) {
        operand_fragment value_fragment;
        load_fragment(value_fragment, values + j * 8 * V_PITCH + d * 8, V_PITCH, lane_row, lane_column);
        #pragma clang loop unroll(full)
        for (int i = 0; i < ROW_FRAGMENTS; i++) {
          simdgroup_multiply_accumulate(sums[i][d], weight[i][j], value_fragment, sums[i][d]);
        }
      }
    }
  }

  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    const int row = first_row + i * 8 + lane_row;
    float sum = row_sum[i];
    sum += simd_shuffle_xor(sum, ushort(1));
    sum += simd_shuffle_xor(sum, ushort(8));
    // 0 only if no key was seen: the largest weight of a row is 1. A NaN goes on into the output.
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    store_row_128(out, out_row_stride, sums[i], inverse, row, q_len, lane_column);
    if (row < q_len && lane_column == 0) {
      logsumexp[row] = sum == 0.0f ? -INFINITY : (row_maximum[i] + log2(sum)) * M_LN2_F;
    }
  }
}

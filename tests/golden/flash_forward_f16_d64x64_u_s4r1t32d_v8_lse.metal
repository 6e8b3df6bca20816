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
constant constexpr int QK_PART = 8;  // fragments of a row that a simdgroup has
constant constexpr int V_PART = 8;
constant constexpr int QK_PITCH = 72;  // elements from one staged row to the next
constant constexpr int V_PITCH = 72;

// Scaled scores live in the log2 domain.
constant constexpr float MASKED = -3.4e+38f;
constant constexpr float LEAST_MAXIMUM = -1.7e+38f;

// 8 neighbouring elements of a row; zeros where there is none.
inline void read_8(thread operand (&values)[8], device const element* source, bool inside) {
  const uint4 read = inside ? *(device const uint4*)source : uint4(0u);
  #pragma clang loop unroll(full)
  for (int n = 0; n < 4; n++) {
    const vec<element, 2> pair = as_type<vec<element, 2>>(read[n]);
    values[2 * n] = operand(pair[0]);
    values[2 * n + 1] = operand(pair[1]);
  }
}

// out = softmax(scale * q k^T) v over the keys of the band; logsumexp is the natural log of the softmax denominator.
// A row without a key is 0, its logsumexp -inf. One simdgroup owns SIMDGROUP_ROWS query rows; keys are read straight from device memory in tiles.
// 0 bytes of threadgroup memory, about 280 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_forward_f16_d64x64_u_s4r1t32d_v8_lse(
    device const half* q [[buffer(0)]],
    device const half* k [[buffer(1)]],
    device const half* v [[buffer(2)]],
    device half* out [[buffer(3)]],
    device float* logsumexp [[buffer(4)]],
    constant long* params [[buffer(5)]],
    constant float& scale [[buffer(6)]],
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
  const long out_batch_stride = long(params[15]);
  const long out_head_stride = long(params[16]);
  const long out_row_stride = long(params[17]);
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
  out += batch * out_batch_stride + head * out_head_stride;
  logsumexp += (batch * heads + head) * q_len;
  const int block_first = block * BLOCK_ROWS;
  const int first_row = block_first + int(simdgroup_index) * SIMDGROUP_ROWS;
  const int end_row = min(first_row + SIMDGROUP_ROWS, q_len);
  if (first_row >= q_len) {
    return;
  }
  const float score_factor = abs(scale) * M_LOG2E_F;  // the sign goes into the queries

  operand_fragment query[ROW_FRAGMENTS][QK_PART];
  sum_fragment sums[ROW_FRAGMENTS][V_PART];
  float row_maximum[ROW_FRAGMENTS];
  float row_sum[ROW_FRAGMENTS];  // of this lane's columns; added up over lanes at the end
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    const int row = first_row + i * 8 + lane_row;
    #pragma clang loop unroll(full)
    for (int f = 0; f < 8; f++) {
      #pragma clang loop unroll(full)
      for (int e = 0; e < 2; e++) {
        const int column = 0 + (lane_column + e) * 8 + f;
        query[i][0 + f].thread_elements()[e] = row < q_len ? operand((q + row * q_row_stride)[column]) : operand(0.0f);
      }
    }

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

  const int first_key = 0;
  const int end_key = clamp(end_row + upper, 0, kv_len);

  for (int key = first_key; key < end_key; key += TILE) {

    sum_fragment score[ROW_FRAGMENTS][TILE_FRAGMENTS];
    #pragma clang loop unroll(full)
    for (int i = 0; i < ROW_FRAGMENTS; i++) {
      #pragma clang loop unroll(full)
      for (int j = 0; j < TILE_FRAGMENTS; j++) {
        score[i][j] = make_filled_simdgroup_matrix<float, 8>(0.0f);
      }
    }
    {
      operand keys[TILE_FRAGMENTS][2][8];
      #pragma clang loop unroll(full)
      for (int j = 0; j < TILE_FRAGMENTS; j++) {
        #pragma clang loop unroll(full)
        for (int e = 0; e < 2; e++) {
          const int row = key + j * 8 + lane_column + e;
          read_8(keys[j][e], k + row * k_row_stride + 0 + lane_row * 8,
                 row < kv_len);
        }
      }
      #pragma clang loop unroll(full)
      for (int f = 0; f < 8; f++) {
        #pragma clang loop unroll(full)
        for (int j = 0; j < TILE_FRAGMENTS; j++) {
          operand_fragment key_fragment;
          key_fragment.thread_elements()[0] = keys[j][0][f];
          key_fragment.thread_elements()[1] = keys[j][1][f];
          #pragma clang loop unroll(full)
          for (int i = 0; i < ROW_FRAGMENTS; i++) {
            simdgroup_multiply_accumulate(score[i][j], query[i][0 + f], key_fragment, score[i][j]);
          }
        }
      }
    }

    const bool cut = key + TILE > kv_len || key + TILE - 1 - first_row > upper;
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
            score[i][j].thread_elements()[e] = column < kv_len && column - row <= upper ? scaled : MASKED;
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
      {
        const int row = key + j * 8 + lane_row;
        operand values[8];
        read_8(values, v + row * v_row_stride + 0 + lane_column * 4, row < kv_len);
        #pragma clang loop unroll(full)
        for (int f = 0; f < 4; f++) {
          operand_fragment value_fragment;
          value_fragment.thread_elements()[0] = values[2 * f];
          value_fragment.thread_elements()[1] = values[2 * f + 1];
          #pragma clang loop unroll(full)
          for (int i = 0; i < ROW_FRAGMENTS; i++) {
            simdgroup_multiply_accumulate(sums[i][0 + f], weight[i][j], value_fragment, sums[i][0 + f]);
          }
        }
      }
      {
        const int row = key + j * 8 + lane_row;
        operand values[8];
        read_8(values, v + row * v_row_stride + 32 + lane_column * 4, row < kv_len);
        #pragma clang loop unroll(full)
        for (int f = 0; f < 4; f++) {
          operand_fragment value_fragment;
          value_fragment.thread_elements()[0] = values[2 * f];
          value_fragment.thread_elements()[1] = values[2 * f + 1];
          #pragma clang loop unroll(full)
          for (int i = 0; i < ROW_FRAGMENTS; i++) {
            simdgroup_multiply_accumulate(sums[i][4 + f], weight[i][j], value_fragment, sums[i][4 + f]);
          }
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
    if (row < q_len) {
      #pragma clang loop unroll(full)
      for (int f = 0; f < 4; f++) {
        #pragma clang loop unroll(full)
        for (int e = 0; e < 2; e++) {
          const int column = 0 + lane_column * 4 + f * 2 + e;
          (out + row * out_row_stride)[column] = element(sums[i][0 + f].thread_elements()[e] * inverse);
        }
      }
      #pragma clang loop unroll(full)
      for (int f = 0; f < 4; f++) {
        #pragma clang loop unroll(full)
        for (int e = 0; e < 2; e++) {
          const int column = 32 + lane_column * 4 + f * 2 + e;
          (out + row * out_row_stride)[column] = element(sums[i][4 + f].thread_elements()[e] * inverse);
        }
      }

    }
    if (row < q_len && lane_column == 0) {
      logsumexp[row] = sum == 0.0f ? -INFINITY : (row_maximum[i] + log2(sum)) * M_LN2_F;
    }
  }
}

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
constant constexpr int BLOCK_ROWS = 8;  // rows that a threadgroup owns
constant constexpr int TILE = 16;  // rows of the other side, staged at a time
constant constexpr int TILE_FRAGMENTS = 2;
constant constexpr int QK_FRAGMENTS = 8;
constant constexpr int V_FRAGMENTS = 16;
constant constexpr int QK_PART = 8;  // fragments of a row that a simdgroup has
constant constexpr int V_PART = 16;
constant constexpr int QK_PITCH = 72;  // elements from one staged row to the next
constant constexpr int V_PITCH = 136;
constant constexpr int PART_KEYS = 256;  // keys of a threadgroup, whose simdgroups take turns at the tiles

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

// Of one part of the keys: part_sums = sum of weight * v, part_statistics = the maximum score and the sum of the weights
// relative to it. The rows of a key head are those of all query heads that share it: each key and value is read once
// for BLOCK_ROWS of them. A row that sees no key of the part has a sum of 0 and no part_sums.
// 8704 bytes of threadgroup memory, about 256 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_decode_f16_d64x128_u_s4r1t16k256d_v8(
    device const half* q [[buffer(0)]],
    device const half* k [[buffer(1)]],
    device const half* v [[buffer(2)]],
    device float* part_sums [[buffer(3)]],
    device float* part_statistics [[buffer(4)]],
    constant long* params [[buffer(5)]],
    constant float& scale [[buffer(6)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float other_sums[2048];
  threadgroup float other_statistics[128];
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
  const long batch = group.z;
  // This lane's two elements of an 8x8 fragment: row bits are lane bits 4 2 1, column bits 3 and 0.
  const int lane_row = int(((lane >> 2) & 4u) | ((lane >> 1) & 3u));
  const int lane_column = int(((lane >> 1) & 4u) | ((lane << 1) & 2u));
  const int members = heads / kv_heads;
  const int rows = members * q_len;
  const int blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
  const long kv_head = int(group.x) / blocks;
  const int first_row = (int(group.x) - int(kv_head) * blocks) * BLOCK_ROWS;
  const int end_row = min(first_row + BLOCK_ROWS, rows);
  q += batch * q_batch_stride + kv_head * members * q_head_stride;
  k += batch * k_batch_stride + kv_head * k_head_stride;
  v += batch * v_batch_stride + kv_head * v_head_stride;
  const long parts = (kv_len + PART_KEYS - 1) / PART_KEYS;
  const long part_row = ((batch * parts + group.y) * heads + kv_head * members) * q_len;
  part_sums += part_row * 128;
  part_statistics += part_row * 2;
  const float score_factor = abs(scale) * M_LOG2E_F;  // the sign goes into the queries

  operand_fragment query[ROW_FRAGMENTS][QK_PART];
  sum_fragment sums[ROW_FRAGMENTS][V_PART];
  int query_row[ROW_FRAGMENTS];  // of this lane's rows
  float row_maximum[ROW_FRAGMENTS];
  float row_sum[ROW_FRAGMENTS];  // of this lane's columns; added up over lanes after the loop
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    const int row = first_row + i * 8 + lane_row;
    const int member = row / q_len;
    const int member_row = row - member * q_len;
    device const element* query_source = q + member * q_head_stride + member_row * q_row_stride;
    #pragma clang loop unroll(full)
    for (int f = 0; f < 8; f++) {
      #pragma clang loop unroll(full)
      for (int e = 0; e < 2; e++) {
        const int column = 0 + (lane_column + e) * 8 + f;
        query[i][0 + f].thread_elements()[e] = row < end_row ? operand(query_source[column]) : operand(0.0f);
      }
    }

    if (scale < 0.0f) {
      #pragma clang loop unroll(full)
      for (int d = 0; d < QK_PART; d++) {
        query[i][d].thread_elements()[0] = operand(-float(query[i][d].thread_elements()[0]));
        query[i][d].thread_elements()[1] = operand(-float(query[i][d].thread_elements()[1]));
      }
    }
    query_row[i] = member_row;
    row_maximum[i] = LEAST_MAXIMUM;
    row_sum[i] = 0.0f;
    #pragma clang loop unroll(full)
    for (int d = 0; d < V_PART; d++) {
      sums[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
  }

  // The queries of the rows: those between the first and the last, or all where the rows are of several heads.
  const int first_member = first_row / q_len;
  const bool one_member = first_member == (end_row - 1) / q_len;
  const int first_query = one_member ? first_row - first_member * q_len : 0;
  const int end_query = one_member ? end_row - first_member * q_len : q_len;
  const int part_first = int(group.y) * PART_KEYS;
  const int first_key = max(part_first, 0);
  const int end_key = min(part_first + PART_KEYS, clamp(end_query + upper, 0, kv_len));
  for (int key = first_key + int(simdgroup_index) * TILE; key < end_key; key += SIMDGROUPS * TILE) {
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

    const bool cut = key + TILE > kv_len || key + TILE - 1 - first_query > upper;
    operand_fragment weight[ROW_FRAGMENTS][TILE_FRAGMENTS];
    #pragma clang loop unroll(full)
    for (int i = 0; i < ROW_FRAGMENTS; i++) {
      // Scores of an uncut tile are scaled within the exponential: the factor is not negative, so it keeps their order.
      float factor = score_factor;
      if (cut) {
        #pragma clang loop unroll(full)
        for (int j = 0; j < TILE_FRAGMENTS; j++) {
          #pragma clang loop unroll(full)
          for (int e = 0; e < 2; e++) {
            const int column = key + j * 8 + lane_column + e;
            const float scaled = score[i][j].thread_elements()[e] * factor;
            score[i][j].thread_elements()[e] = column < kv_len && column - query_row[i] <= upper ? scaled : MASKED;
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
      {
        const int row = key + j * 8 + lane_row;
        operand values[8];
        read_8(values, v + row * v_row_stride + 64 + lane_column * 4, row < kv_len);
        #pragma clang loop unroll(full)
        for (int f = 0; f < 4; f++) {
          operand_fragment value_fragment;
          value_fragment.thread_elements()[0] = values[2 * f];
          value_fragment.thread_elements()[1] = values[2 * f + 1];
          #pragma clang loop unroll(full)
          for (int i = 0; i < ROW_FRAGMENTS; i++) {
            simdgroup_multiply_accumulate(sums[i][8 + f], weight[i][j], value_fragment, sums[i][8 + f]);
          }
        }
      }
      {
        const int row = key + j * 8 + lane_row;
        operand values[8];
        read_8(values, v + row * v_row_stride + 96 + lane_column * 4, row < kv_len);
        #pragma clang loop unroll(full)
        for (int f = 0; f < 4; f++) {
          operand_fragment value_fragment;
          value_fragment.thread_elements()[0] = values[2 * f];
          value_fragment.thread_elements()[1] = values[2 * f + 1];
          #pragma clang loop unroll(full)
          for (int i = 0; i < ROW_FRAGMENTS; i++) {
            simdgroup_multiply_accumulate(sums[i][12 + f], weight[i][j], value_fragment, sums[i][12 + f]);
          }
        }
      }
    }
  }

  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    row_sum[i] += simd_shuffle_xor(row_sum[i], ushort(1));
    row_sum[i] += simd_shuffle_xor(row_sum[i], ushort(8));
  }

  for (int half_count = SIMDGROUPS / 2; half_count > 0; half_count /= 2) {
    const int place = int(simdgroup_index) % half_count * ROW_FRAGMENTS;
    if (int(simdgroup_index) >= half_count && int(simdgroup_index) < 2 * half_count) {
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        other_statistics[(place + i) * 64 + int(lane) * 2] = row_maximum[i];
        other_statistics[(place + i) * 64 + int(lane) * 2 + 1] = row_sum[i];
        #pragma clang loop unroll(full)
        for (int d = 0; d < V_PART; d++) {
          other_sums[((place + i) * V_PART + d) * 64 + int(lane) * 2] = sums[i][d].thread_elements()[0];
          other_sums[((place + i) * V_PART + d) * 64 + int(lane) * 2 + 1] = sums[i][d].thread_elements()[1];
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (int(simdgroup_index) < half_count) {
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        const float other_maximum = other_statistics[(place + i) * 64 + int(lane) * 2];
        const float other_sum = other_statistics[(place + i) * 64 + int(lane) * 2 + 1];
        const float maximum = max(row_maximum[i], other_maximum);
        const float shrink = fast::exp2(row_maximum[i] - maximum);
        const float other_shrink = fast::exp2(other_maximum - maximum);
        row_maximum[i] = maximum;
        row_sum[i] = fma(row_sum[i], shrink, other_sum * other_shrink);
        #pragma clang loop unroll(full)
        for (int d = 0; d < V_PART; d++) {
          const float first = other_sums[((place + i) * V_PART + d) * 64 + int(lane) * 2];
          const float second = other_sums[((place + i) * V_PART + d) * 64 + int(lane) * 2 + 1];
          sums[i][d].thread_elements()[0] = fma(sums[i][d].thread_elements()[0], shrink, first * other_shrink);
          sums[i][d].thread_elements()[1] = fma(sums[i][d].thread_elements()[1], shrink, second * other_shrink);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  if (simdgroup_index == 0) {
    #pragma clang loop unroll(full)
    for (int i = 0; i < ROW_FRAGMENTS; i++) {
      const int row = first_row + i * 8 + lane_row;
      if (row < end_row && lane_column == 0) {
        part_statistics[row * 2] = row_maximum[i];
        part_statistics[row * 2 + 1] = row_sum[i];
      }
      if (row < end_row && row_sum[i] != 0.0f) {
        #pragma clang loop unroll(full)
        for (int f = 0; f < 4; f++) {
          #pragma clang loop unroll(full)
          for (int e = 0; e < 2; e++) {
            const int column = 0 + lane_column * 4 + f * 2 + e;
            (part_sums + long(row) * 128)[column] = sums[i][0 + f].thread_elements()[e];
          }
        }
        #pragma clang loop unroll(full)
        for (int f = 0; f < 4; f++) {
          #pragma clang loop unroll(full)
          for (int e = 0; e < 2; e++) {
            const int column = 32 + lane_column * 4 + f * 2 + e;
            (part_sums + long(row) * 128)[column] = sums[i][4 + f].thread_elements()[e];
          }
        }
        #pragma clang loop unroll(full)
        for (int f = 0; f < 4; f++) {
          #pragma clang loop unroll(full)
          for (int e = 0; e < 2; e++) {
            const int column = 64 + lane_column * 4 + f * 2 + e;
            (part_sums + long(row) * 128)[column] = sums[i][8 + f].thread_elements()[e];
          }
        }
        #pragma clang loop unroll(full)
        for (int f = 0; f < 4; f++) {
          #pragma clang loop unroll(full)
          for (int e = 0; e < 2; e++) {
            const int column = 96 + lane_column * 4 + f * 2 + e;
            (part_sums + long(row) * 128)[column] = sums[i][12 + f].thread_elements()[e];
          }
        }

      }
    }
  }
}

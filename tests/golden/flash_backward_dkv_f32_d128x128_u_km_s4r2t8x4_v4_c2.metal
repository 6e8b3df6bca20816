#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

typedef float element;
typedef float operand;  // what the operands of a product hold; sums are float
typedef simdgroup_matrix<operand, 8, 8> operand_fragment;
typedef simdgroup_matrix<float, 8, 8> sum_fragment;

constant constexpr int SIMDGROUPS = 4;
constant constexpr int THREADS = 128;
constant constexpr int ROW_FRAGMENTS = 2;  // 8-row fragments that a simdgroup owns
constant constexpr int SIMDGROUP_ROWS = 16;
constant constexpr int BLOCK_ROWS = 16;  // rows that a threadgroup owns
constant constexpr int TILE = 8;  // rows of the other side, staged at a time
constant constexpr int TILE_FRAGMENTS = 1;
constant constexpr int QK_FRAGMENTS = 16;
constant constexpr int V_FRAGMENTS = 16;
constant constexpr int STATISTICS = 1;  // queries of a tile whose row statistics one lane has
constant constexpr int SHARING = 4;  // simdgroups that own the same rows
constant constexpr int PARTS = 2;  // simdgroups that make the same products, each with a part of the head dim
constant constexpr int QK_PITCH = 132;  // elements from one staged row to the next
constant constexpr int V_PITCH = 132;

// A row that sees nothing: exp2(score - ROW_UNSEEN) is 0, without an infinity that fast math may not know.
constant constexpr float ROW_UNSEEN = 1.7e+38f;

// Scores and shifts in natural units, rounded as in the forward: where a score is all of its row's logsumexp, the weight
// is exactly 1. `factor` is the scale. An fma rounds alone: a product might be contracted with the difference.
inline float shift_of(float logsumexp) {
  return logsumexp < -ROW_UNSEEN ? ROW_UNSEEN : logsumexp;
}
inline float weight_of(float score, float factor, float shift) {
  return fast::exp2((fma(score, factor, 0.0f) - shift) * M_LOG2E_F);
}

// Copies rows [first, first + TILE) of 128 elements into a tile; rows past the end become zeros.
inline void stage_128(device const element* source, long row_stride, int first, int rows,
                     threadgroup element* tile, int pitch, int thread_index) {
  constexpr int UNITS = 32;
  #pragma clang loop unroll(full)
  for (int n = 0; n < 2; n++) {
    const int i = n * THREADS + thread_index;
    const int row = i / UNITS;
    const int column = (i - row * UNITS) * 4;
    const bool inside = first + row < rows;
    threadgroup uint4* target = (threadgroup uint4*)(tile + row * pitch + column);
    *target = inside ? *(device const uint4*)(source + (first + row) * row_stride + column) : uint4(0u);
  }
}

// An 8x8 fragment of a tile.
inline void load_fragment(thread operand_fragment& loaded, threadgroup const element* tile, int pitch,
                          int lane_row, int lane_column) {
  simdgroup_load(loaded, tile, pitch);
}
// The transpose of an 8x8 fragment of a tile.
inline void load_transposed(thread operand_fragment& loaded, threadgroup const element* tile, int pitch,
                            int lane_row, int lane_column) {
  simdgroup_load(loaded, tile, pitch, ulong2(0, 0), true);
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

// partial = own * streamed rows^T over `count` fragments of the head dim, for each block.
inline void multiply_part(thread sum_fragment (&partial)[BLOCKS][ROW_FRAGMENTS],
                          thread operand_fragment (&own)[ROW_FRAGMENTS][8],
                          threadgroup const element* rows, int pitch, int count, int lane_row, int lane_column) {
  clear(partial);
  #pragma clang loop unroll(full)
  for (int d = 0; d < 8; d++) {
    #pragma clang loop unroll(full)
    for (int b = 0; b < BLOCKS; b++) {
      operand_fragment fragment_of_rows;
      load_transposed(fragment_of_rows, rows + b * 8 * pitch + d * 8, pitch, lane_row, lane_column);
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        simdgroup_multiply_accumulate(partial[b][i], own[i][d], fragment_of_rows, partial[b][i]);
      }
    }
  }
}

// sums += weights * streamed rows, over `count` fragments of the head dim.
inline void add_products(thread sum_fragment (&sums)[ROW_FRAGMENTS][8],
                         thread operand_fragment (&weights)[BLOCKS][ROW_FRAGMENTS],
                         threadgroup const element* rows, int pitch, int count, int lane_row, int lane_column) {
  #pragma clang loop unroll(full)
  for (int d = 0; d < 8; d++) {
    #pragma clang loop unroll(full)
    for (int b = 0; b < BLOCKS; b++) {
      operand_fragment fragment_of_rows;
      load_fragment(fragment_of_rows, rows + b * 8 * pitch + d * 8, pitch, lane_row, lane_column);
      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        simdgroup_multiply_accumulate(sums[i][d], weights[b][i], fragment_of_rows, sums[i][d]);
      }
    }
  }
}

// Products for the simdgroups that share these rows. All hold the same elements in the same lanes.
inline void give(threadgroup float* products, thread sum_fragment (&partial)[BLOCKS][ROW_FRAGMENTS], int lane) {
  #pragma clang loop unroll(full)
  for (int b = 0; b < BLOCKS; b++) {
    #pragma clang loop unroll(full)
    for (int i = 0; i < ROW_FRAGMENTS; i++) {
      *(threadgroup float2*)(products + (b * ROW_FRAGMENTS + i) * 64 + lane * 2) = float2(partial[b][i].thread_elements()[0], partial[b][i].thread_elements()[1]);
    }
  }
}

// Element pair (b, i) of the whole products: the simdgroup's own part, and those of the others in their fixed order.
// `own`: which of the 2 parts is this simdgroup's, or none if it is not among 0 to 1.
inline float2 whole(threadgroup const float* products, thread sum_fragment& partial, int own, int b, int i, int lane) {
  float2 part_0 = float2(partial.thread_elements()[0], partial.thread_elements()[1]);
  if (own != 0) {
    part_0 = *(threadgroup const float2*)(products + 0 * 128 + (b * ROW_FRAGMENTS + i) * 64 + lane * 2);
  }
  float2 part_1 = float2(partial.thread_elements()[0], partial.thread_elements()[1]);
  if (own != 1) {
    part_1 = *(threadgroup const float2*)(products + 1 * 128 + (b * ROW_FRAGMENTS + i) * 64 + lane * 2);
  }
  return part_0 + part_1;
}

// Fragments [first, first + 8) of one row, and the reverse for sums. Columns past the row are zeros, and not stored.
inline void load_part(thread operand_fragment (&own)[8], device const element* source, long row_stride, int first, int width,
                      int row, int rows, int lane_column) {
  #pragma clang loop unroll(full)
  for (int d = 0; d < 8; d++) {
    const int column = (first + d) * 8 + lane_column;
    const long at = row * row_stride + column;
    own[d].thread_elements()[0] = row < rows && column < width ? operand(source[at]) : operand(0.0f);
    own[d].thread_elements()[1] = row < rows && column + 1 < width ? operand(source[at + 1]) : operand(0.0f);
  }
}
inline void store_part(device element* target, long row_stride, thread sum_fragment (&sums)[8], float factor, int first,
                       int end, int row, int rows, int lane_column) {
  #pragma clang loop unroll(full)
  for (int d = 0; d < 8; d++) {
    const int column = (first + d) * 8 + lane_column;
    const long at = row * row_stride + column;
    if (row < rows && column < end) {
      target[at] = element(sums[d].thread_elements()[0] * factor);
    }
    if (row < rows && column + 1 < end) {
      target[at + 1] = element(sums[d].thread_elements()[1] * factor);
    }
  }
}

// A number of query `at` of the tile, which one lane has.
inline float of_query(thread const float (&numbers)[STATISTICS], int at) {
  return simd_shuffle(numbers[0], ushort(at));
}

constant constexpr int MASK_WORDS = 1;

// Bit n of `live`: key first + n exists and its key_mask is true. Returns whether any bit is set.
inline bool live_keys(thread uint (&live)[MASK_WORDS], device const bool* key_mask, long key_stride, int first,
                      int kv_len, uint lane) {
  uint any = 0u;
  #pragma clang loop unroll(full)
  for (int word = 0; word < MASK_WORDS; word++) {
    const int key = first + word * 32 + int(lane);
    live[word] = simd_or(word * 32 + int(lane) < 16 && key < kv_len && key_mask[key * key_stride] ? 1u << lane : 0u);
    any |= live[word];
  }
  return any != 0u;
}

// Whether all 16 keys are live: then nothing is to be masked.
inline bool all_live(thread const uint (&live)[MASK_WORDS]) {
  return live[0] == 0xffffu;
}

// Key `at` of the tile, in the eight keys from 8 * j: a word is chosen when the text is compiled.
inline bool is_live(thread const uint (&live)[MASK_WORDS], int j, int at) {
  return (live[0] >> uint(at % 32) & 1u) != 0u;
}

// grad_v = weight^T grad_out and grad_k = scale * grad_score^T q, summed over the query heads that share a key head.
// 4 simdgroups share SIMDGROUP_ROWS keys; query rows stream by in tiles. A key that nobody sees gets 0.
// 10496 bytes of threadgroup memory, about 280 bytes kept in the registers of a thread.
[[max_total_threads_per_threadgroup(128)]]
kernel void flash_backward_dkv_f32_d128x128_u_km_s4r2t8x4_v4_c2(
    device const float* q [[buffer(0)]],
    device const float* k [[buffer(1)]],
    device const float* v [[buffer(2)]],
    device const float* grad_out [[buffer(3)]],
    device const float* logsumexp [[buffer(4)]],
    device const float* delta [[buffer(5)]],
    device const bool* key_mask [[buffer(6)]],
    device float* grad_k [[buffer(7)]],
    device float* grad_v [[buffer(8)]],
    constant long* params [[buffer(9)]],
    constant float& scale [[buffer(10)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float query_tile[1056];
  threadgroup float grad_tile[1056];
  threadgroup float partial_products[512];
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
  const long key_mask_batch_stride = long(params[18]);
  const long key_mask_key_stride = long(params[19]);
  const long grad_k_batch_stride = long(params[20]);
  const long grad_k_head_stride = long(params[21]);
  const long grad_k_row_stride = long(params[22]);
  const long grad_v_batch_stride = long(params[23]);
  const long grad_v_head_stride = long(params[24]);
  const long grad_v_row_stride = long(params[25]);
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
  grad_v += batch * grad_v_batch_stride + kv_head * grad_v_head_stride;
  logsumexp += (batch * heads + first_head) * q_len;
  delta += (batch * heads + first_head) * q_len;
  key_mask += batch * key_mask_batch_stride;
  const int block_first = block * BLOCK_ROWS;
  const int block_end = min(block_first + BLOCK_ROWS, kv_len);
  // Of 4 neighbouring simdgroups with the same rows, the first 2 make scores, the others gradients of weights.
  const int member = int(simdgroup_index) % SHARING;
  const bool makes_scores = member < PARTS;
  const int own_width = makes_scores ? 128 : 128;
  const int own_part = makes_scores ? 8 : 8;  // fragments
  const int first_own = (makes_scores ? member : member - PARTS) * own_part;
  const int own_count = min(own_part, (makes_scores ? QK_FRAGMENTS : V_FRAGMENTS) - first_own);
  threadgroup float* products = partial_products + int(simdgroup_index) / SHARING * 512;
  const int first_key = block_first + int(simdgroup_index) / SHARING * SIMDGROUP_ROWS;
  const int end_key = min(first_key + SIMDGROUP_ROWS, kv_len);
  const float factor = scale;

  // The first half of the simdgroups that share keys makes scores and grad_v, the second gradients of weights and grad_k.
  operand_fragment own[ROW_FRAGMENTS][8];
  sum_fragment sums[ROW_FRAGMENTS][8];
  const int sum_part = makes_scores ? 8 : 8;  // fragments
  const int first_sum = (makes_scores ? member : member - PARTS) * sum_part;
  const int sum_count = min(sum_part, (makes_scores ? V_FRAGMENTS : QK_FRAGMENTS) - first_sum);
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    load_part(own[i], makes_scores ? k : v, makes_scores ? k_row_stride : v_row_stride, first_own, own_width,
              first_key + i * 8 + lane_row, kv_len, lane_column);
    #pragma clang loop unroll(full)
    for (int d = 0; d < 8; d++) {
      sums[i][d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
  }

  const int first_row = clamp(block_first - upper, 0, q_len) / TILE * TILE;
  uint block_live[MASK_WORDS];
  const bool any_live = live_keys(block_live, key_mask, key_mask_key_stride, block_first, kv_len, lane);
  const int end_row = any_live ? q_len : first_row;
  bool live[ROW_FRAGMENTS];
  bool own_live = false;
  bool own_masked = false;
  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    live[i] = first_key + i * 8 + lane_row < kv_len && key_mask[(first_key + i * 8 + lane_row) * key_mask_key_stride];
    own_live = own_live || live[i];
    own_masked = own_masked || !live[i];
  }
  own_live = simd_any(own_live);
  own_masked = simd_any(own_masked);
  // The tiles of all the heads that share this key head, one head after the other.
  const int steps = end_row > first_row ? sharing * ((end_row - first_row + TILE - 1) / TILE) : 0;
  float lane_shift[STATISTICS];
  float lane_delta[STATISTICS];

  for (int step = 0, row = first_row; step < steps; step++, row = row + TILE < end_row ? row + TILE : first_row) {
    threadgroup element* queries = query_tile;
    threadgroup element* grads = grad_tile;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_128(q, q_row_stride, row, q_len, queries, QK_PITCH, int(thread_index));
    stage_128(grad_out, grad_out_row_stride, row, q_len, grads, V_PITCH, int(thread_index));
    #pragma clang loop unroll(full)
    for (int n = 0; n < STATISTICS; n++) {
      const int query = n * 32 + int(lane);
      const bool inside = query < TILE && row + query < q_len;
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
    const bool skipped = first_key >= end_key || !own_live || first_key - tile_end >= upper;
    // Keys past the end need no mask: each only makes its own gradients, which are not stored.
    const bool cut = row + TILE > q_len || own_masked || end_key - 1 - row > upper;

    sum_fragment partial[BLOCKS][ROW_FRAGMENTS];
    if (!skipped) {
      multiply_part(partial, own, (makes_scores ? queries : grads) + first_own * 8, makes_scores ? QK_PITCH : V_PITCH, own_count,
                    lane_row, lane_column);
      give(products + member * 128, partial, int(lane));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (skipped) {
      continue;
    }
    // Fragments are [keys x queries] here: a lane's two elements are two queries of one key.
    operand_fragment weights[BLOCKS][ROW_FRAGMENTS];
    #pragma clang loop unroll(full)
    for (int b = 0; b < BLOCKS; b++) {
      const float2 shift = float2(of_query(lane_shift, b * 8 + lane_column), of_query(lane_shift, b * 8 + lane_column + 1));
      const float2 row_delta = float2(of_query(lane_delta, b * 8 + lane_column), of_query(lane_delta, b * 8 + lane_column + 1));

      #pragma clang loop unroll(full)
      for (int i = 0; i < ROW_FRAGMENTS; i++) {
        const float2 score = whole(products, partial[b][i], member, b, i, int(lane));
        float2 grad_weight = float2(1.0f);
        if (!makes_scores) {
          grad_weight = whole(products + PARTS * 128, partial[b][i], member - PARTS, b, i, int(lane)) - row_delta;
        }
        #pragma clang loop unroll(full)
        for (int e = 0; e < 2; e++) {
          float weight = weight_of(score[e], factor, shift[e]) * grad_weight[e];
          if (cut) {
            const int key = first_key + i * 8 + lane_row;
            const int query_row = row + b * 8 + lane_column + e;
            const bool seen = query_row < q_len && live[i] && key - query_row <= upper;
            weight = seen ? weight : 0.0f;
          }
          weights[b][i].thread_elements()[e] = operand(weight);
        }
      }
    }
    add_products(sums, weights, (makes_scores ? grads : queries) + first_sum * 8, makes_scores ? V_PITCH : QK_PITCH, sum_count,
                 lane_row, lane_column);
  }

  #pragma clang loop unroll(full)
  for (int i = 0; i < ROW_FRAGMENTS; i++) {
    const int key = first_key + i * 8 + lane_row;
    if (makes_scores) {
      store_part(grad_v, grad_v_row_stride, sums[i], 1.0f, first_sum, min(128, (first_sum + sum_count) * 8), key, kv_len, lane_column);
    } else {
      store_part(grad_k, grad_k_row_stride, sums[i], scale, first_sum, min(128, (first_sum + sum_count) * 8), key, kv_len, lane_column);
    }
  }
}

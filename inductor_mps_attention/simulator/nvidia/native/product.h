// 8x8x8 products on tensor cores, two elements of each operand a thread.
//
// The smallest product of the hardware has 16 rows; the upper eight carry the matrix, the lower eight are zero. With
// MSL_REZERO each product gets fresh zeros for the lower rows of its sums; otherwise `idle` keeps those that the last
// product left, which are zeros too, and saves the instructions that make them. (Apple's unit is 8 by 8: it has none.)
//
// MSL_EXACT_FLOAT 1: products of float are shuffles and fused multiply-adds, in order of the inner index, as on the CPU
// engine. 0: each float is split in two tf32, the low parts fill the lower eight rows, and the product of the low parts
// is dropped; rounding differs in the last bits, and infinities become NaN.
#pragma once
#include "lane_operations.h"

namespace metal {
namespace msl_detail {

MSL_INLINE float2 multiply_16_bit(uint a, uint b, float2 c, float2& idle, half) {
    float2 d;
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%7,%8,%9,%10};"
        : "=f"(d.x), "=f"(d.y), "=f"(idle.x), "=f"(idle.y)
        : "r"(a), "r"(0u), "r"(b), "f"(c.x), "f"(c.y), "f"(idle.x), "f"(idle.y));
    return d;
}
MSL_INLINE float2 multiply_16_bit(uint a, uint b, float2 c, float2& idle, bfloat) {
    float2 d;
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%7,%8,%9,%10};"
        : "=f"(d.x), "=f"(d.y), "=f"(idle.x), "=f"(idle.y)
        : "r"(a), "r"(0u), "r"(b), "f"(c.x), "f"(c.y), "f"(idle.x), "f"(idle.y));
    return d;
}

// To nearest; infinity and NaN stay.
MSL_INLINE uint tf32_bits(float x) { return (__float_as_uint(x) + 0x1000u) & 0xffffe000u; }

// `b` is the right operand transposed, as the hardware wants it.
MSL_INLINE float2 multiply_split(float2 a, float2 b, float2 c) {
    uint high_a0 = tf32_bits(a.x), high_a1 = tf32_bits(a.y), high_b0 = tf32_bits(b.x), high_b1 = tf32_bits(b.y);
    uint low_a0 = tf32_bits(a.x - __uint_as_float(high_a0)), low_a1 = tf32_bits(a.y - __uint_as_float(high_a1));
    uint low_b0 = tf32_bits(b.x - __uint_as_float(high_b0)), low_b1 = tf32_bits(b.y - __uint_as_float(high_b1));
    float2 d, high_low, low_low, low_high;
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
        : "=f"(high_low.x), "=f"(high_low.y), "=f"(low_low.x), "=f"(low_low.y)
        : "r"(high_a0), "r"(low_a0), "r"(high_a1), "r"(low_a1), "r"(low_b0), "r"(low_b1), "f"(0.0f));
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
        : "=f"(d.x), "=f"(d.y), "=f"(low_high.x), "=f"(low_high.y)
        : "r"(high_a0), "r"(low_a0), "r"(high_a1), "r"(low_a1), "r"(high_b0), "r"(high_b1), "f"(c.x), "f"(c.y),
          "f"(high_low.x), "f"(high_low.y));
    return float2(d.x + low_high.x, d.y + low_high.y);
}

MSL_INLINE float2 multiply_exact(float2 a, float2 b, float2 c) {
    uint lane = own_hardware_lane(), row = lane & 28u, column = lane & 3u;
    for (uint k = 0; k < 8; ++k) {
        float left = __shfl_sync(ALL_LANES, k & 1 ? a.y : a.x, row | k >> 1);
        float right0 = __shfl_sync(ALL_LANES, b.x, k << 2 | column);
        float right1 = __shfl_sync(ALL_LANES, b.y, k << 2 | column);
        c.x = ::fmaf(left, right0, c.x);
        c.y = ::fmaf(left, right1, c.y);
    }
    return c;
}

}  // namespace msl_detail
}  // namespace metal

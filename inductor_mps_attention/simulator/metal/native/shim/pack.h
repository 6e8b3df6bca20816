// <metal_pack>: normalised integers in a word.
#pragma once
#include "integer.h"

namespace metal {

namespace msl_detail {
MSL_INLINE uint normalised(float x, float low, float scale) {
    return static_cast<uint>(static_cast<int>(__builtin_rintf(smaller(larger(x, low), 1.0f) * scale)));
}
MSL_INLINE float signed_part(uint word, int shift, int bits, float scale) {
    int part = static_cast<int>(word << (32 - bits - shift)) >> (32 - bits);
    return larger(static_cast<float>(part) / scale, -1.0f);
}
MSL_INLINE float unsigned_part(uint word, int shift, int bits, float scale) {
    return static_cast<float>(word >> shift & ((1u << bits) - 1)) / scale;
}
}  // namespace msl_detail

MSL_INLINE uint pack_float_to_unorm4x8(float4 v) {
    uint word = 0;
    for (int i = 0; i < 4; ++i) word |= (msl_detail::normalised(v[i], 0.0f, 255.0f) & 0xff) << 8 * i;
    return word;
}
MSL_INLINE uint pack_float_to_snorm4x8(float4 v) {
    uint word = 0;
    for (int i = 0; i < 4; ++i) word |= (msl_detail::normalised(v[i], -1.0f, 127.0f) & 0xff) << 8 * i;
    return word;
}
MSL_INLINE uint pack_float_to_unorm2x16(float2 v) {
    return msl_detail::normalised(v.x, 0.0f, 65535.0f) | msl_detail::normalised(v.y, 0.0f, 65535.0f) << 16;
}
MSL_INLINE uint pack_float_to_snorm2x16(float2 v) {
    return (msl_detail::normalised(v.x, -1.0f, 32767.0f) & 0xffff) | msl_detail::normalised(v.y, -1.0f, 32767.0f) << 16;
}
MSL_INLINE float4 unpack_unorm4x8_to_float(uint word) {
    return float4(msl_detail::unsigned_part(word, 0, 8, 255.0f), msl_detail::unsigned_part(word, 8, 8, 255.0f),
                  msl_detail::unsigned_part(word, 16, 8, 255.0f), msl_detail::unsigned_part(word, 24, 8, 255.0f));
}
MSL_INLINE float4 unpack_snorm4x8_to_float(uint word) {
    return float4(msl_detail::signed_part(word, 0, 8, 127.0f), msl_detail::signed_part(word, 8, 8, 127.0f),
                  msl_detail::signed_part(word, 16, 8, 127.0f), msl_detail::signed_part(word, 24, 8, 127.0f));
}
MSL_INLINE float2 unpack_unorm2x16_to_float(uint word) {
    return float2(msl_detail::unsigned_part(word, 0, 16, 65535.0f), msl_detail::unsigned_part(word, 16, 16, 65535.0f));
}
MSL_INLINE float2 unpack_snorm2x16_to_float(uint word) {
    return float2(msl_detail::signed_part(word, 0, 16, 32767.0f), msl_detail::signed_part(word, 16, 16, 32767.0f));
}

}  // namespace metal

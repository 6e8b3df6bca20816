// The functions that engines compute in their own ways, exactly and under metal::fast. Here both are the host's.
#pragma once
#include "vector_operators.h"

namespace metal {
namespace msl_detail {

// With one NaN the other operand, as in Metal.
MSL_INLINE constexpr float larger(float x, float y) { return x < y || x != x ? y : x; }
MSL_INLINE constexpr float smaller(float x, float y) { return y < x || x != x ? y : x; }

MSL_INLINE float exp2_of(float x) {
    ++msl_exp2_calls;
    return __builtin_exp2f(x);
}
MSL_INLINE float exp_of(float x) { return __builtin_expf(x); }
MSL_INLINE float log_of(float x) { return __builtin_logf(x); }
MSL_INLINE float log2_of(float x) { return __builtin_log2f(x); }
MSL_INLINE float rsqrt_of(float x) { return 1.0f / __builtin_sqrtf(x); }
MSL_INLINE float divide_of(float x, float y) { return x / y; }

MSL_INLINE float fast_exp2_of(float x) { return exp2_of(x); }
MSL_INLINE float fast_exp_of(float x) { return exp_of(x); }
MSL_INLINE float fast_log_of(float x) { return log_of(x); }
MSL_INLINE float fast_log2_of(float x) { return log2_of(x); }
MSL_INLINE float fast_rsqrt_of(float x) { return rsqrt_of(x); }
MSL_INLINE float fast_divide_of(float x, float y) { return divide_of(x, y); }

}  // namespace msl_detail
}  // namespace metal

// The functions that engines compute in their own ways: those of metal::fast are the hardware's approximations.
#pragma once
#include "vector_operators.h"

namespace metal {
namespace msl_detail {

// With one NaN the other operand, as in Metal.
MSL_INLINE float larger(float x, float y) { return ::fmaxf(x, y); }
MSL_INLINE float smaller(float x, float y) { return ::fminf(x, y); }

MSL_INLINE float exp2_of(float x) { return ::exp2f(x); }
MSL_INLINE float exp_of(float x) { return ::expf(x); }
MSL_INLINE float log_of(float x) { return ::logf(x); }
MSL_INLINE float log2_of(float x) { return ::log2f(x); }
MSL_INLINE float rsqrt_of(float x) { return ::rsqrtf(x); }
MSL_INLINE float divide_of(float x, float y) { return __fdiv_rn(x, y); }

MSL_INLINE float fast_exp2_of(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
MSL_INLINE float fast_exp_of(float x) { return fast_exp2_of(x * 1.44269504088896341f); }
MSL_INLINE float fast_log2_of(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
MSL_INLINE float fast_log_of(float x) { return fast_log2_of(x) * 0.69314718055994531f; }
MSL_INLINE float fast_rsqrt_of(float x) {
    float result;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
MSL_INLINE float fast_divide_of(float x, float y) { return __fdividef(x, y); }

}  // namespace msl_detail
}  // namespace metal

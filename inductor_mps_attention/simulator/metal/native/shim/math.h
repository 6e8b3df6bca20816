// <metal_math>: the floating-point functions in metal::, metal::precise:: and metal::fast::.
#pragma once
#include "elementary.h"

namespace metal {

namespace msl_detail {

MSL_INLINE float exp10_of(float x) { return static_cast<float>(__builtin_pow(10.0, static_cast<double>(x))); }

// Exact at multiples of 1/2, unlike sin(pi * x).
MSL_INLINE float sinpi_of(float x) {
    double turn = static_cast<double>(x) - 2.0 * __builtin_rint(static_cast<double>(x) * 0.5);
    if (turn == 0.0 || turn == 1.0 || turn == -1.0) return __builtin_copysignf(0.0f, x);
    return static_cast<float>(__builtin_sin(3.14159265358979323846 * turn));
}
MSL_INLINE float cospi_of(float x) {
    double turn = static_cast<double>(x) - 2.0 * __builtin_rint(static_cast<double>(x) * 0.5);
    if (turn == 0.5 || turn == -0.5) return 0.0f;
    return static_cast<float>(__builtin_cos(3.14159265358979323846 * turn));
}

// Below 1 even where x - floor(x) rounds to 1.
MSL_INLINE float fract_of(float x) {
    float fraction = x - __builtin_floorf(x);
    return fraction < 0x1.fffffep-1f ? fraction : fraction != fraction ? fraction : 0x1.fffffep-1f;
}

MSL_INLINE float smoothstep_of(float low, float high, float x) {
    float t = smaller(larger((x - low) / (high - low), 0.0f), 1.0f);
    return t * t * (3.0f - 2.0f * t);
}

}  // namespace msl_detail

#define MSL_ELEMENTARY(name) msl_detail::name##_of
#include "math_functions.inc"

namespace precise {
#include "math_functions.inc"
}

#undef MSL_ELEMENTARY
#define MSL_ELEMENTARY(name) msl_detail::fast_##name##_of
namespace fast {
#include "math_functions.inc"
}
#undef MSL_ELEMENTARY

MSL_INLINE float radians(float degrees) { return degrees * 0.017453292519943295f; }
MSL_INLINE float degrees(float radians) { return radians * 57.29577951308232f; }

}  // namespace metal

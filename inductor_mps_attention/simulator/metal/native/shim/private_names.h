// Functions behind those of Apple's headers. Public projects call them to give metal:: the overloads with bfloat that
// it lacks; the flag of the mathematical ones says how exact they are, which is all the same here.
#pragma once
#include "simdgroup.h"

#define MSL_PRIVATE_UNARY(name)                                                \
    template <class T>                                                         \
    MSL_INLINE T __metal_##name(T x, int) {                                    \
        return metal::name(x);                                                 \
    }
#define MSL_PRIVATE_BINARY(name)                                               \
    template <class T>                                                         \
    MSL_INLINE T __metal_##name(T x, T y, int) {                               \
        return metal::name(x, y);                                              \
    }
#define MSL_PRIVATE_TERNARY(name, function)                                    \
    template <class T>                                                         \
    MSL_INLINE T __metal_##name(T x, T y, T z, int) {                          \
        return metal::function(x, y, z);                                       \
    }
MSL_PRIVATE_UNARY(acos) MSL_PRIVATE_UNARY(acosh) MSL_PRIVATE_UNARY(asin) MSL_PRIVATE_UNARY(asinh)
MSL_PRIVATE_UNARY(atan) MSL_PRIVATE_UNARY(atanh) MSL_PRIVATE_UNARY(ceil) MSL_PRIVATE_UNARY(cos)
MSL_PRIVATE_UNARY(cosh) MSL_PRIVATE_UNARY(cospi) MSL_PRIVATE_UNARY(exp) MSL_PRIVATE_UNARY(exp10)
MSL_PRIVATE_UNARY(exp2) MSL_PRIVATE_UNARY(fabs) MSL_PRIVATE_UNARY(floor) MSL_PRIVATE_UNARY(fract)
MSL_PRIVATE_UNARY(log) MSL_PRIVATE_UNARY(log10) MSL_PRIVATE_UNARY(log2) MSL_PRIVATE_UNARY(rint)
MSL_PRIVATE_UNARY(round) MSL_PRIVATE_UNARY(rsqrt) MSL_PRIVATE_UNARY(sin) MSL_PRIVATE_UNARY(sinh)
MSL_PRIVATE_UNARY(sinpi) MSL_PRIVATE_UNARY(sqrt) MSL_PRIVATE_UNARY(tan) MSL_PRIVATE_UNARY(tanh)
MSL_PRIVATE_UNARY(tanpi) MSL_PRIVATE_UNARY(trunc) MSL_PRIVATE_UNARY(saturate)
MSL_PRIVATE_BINARY(atan2) MSL_PRIVATE_BINARY(divide) MSL_PRIVATE_BINARY(fmax) MSL_PRIVATE_BINARY(fmin)
MSL_PRIVATE_BINARY(fmod) MSL_PRIVATE_BINARY(pow) MSL_PRIVATE_BINARY(powr)
MSL_PRIVATE_TERNARY(fmax3, max3) MSL_PRIVATE_TERNARY(fmin3, min3) MSL_PRIVATE_TERNARY(fmedian3, median3)
#undef MSL_PRIVATE_UNARY
#undef MSL_PRIVATE_BINARY
#undef MSL_PRIVATE_TERNARY

// Those without a flag.
template <class T>
MSL_INLINE T __metal_fma(T x, T y, T z) {
    return metal::fma(x, y, z);
}
template <class T>
MSL_INLINE T __metal_nextafter(T x, T y) {
    return metal::nextafter(x, y);
}
template <class T>
MSL_INLINE T __metal_ldexp(T x, int exponent, int) {
    return metal::ldexp(x, exponent);
}
template <class T>
MSL_INLINE T __metal_frexp(T x, int* exponent) {
    return metal::frexp(x, *exponent);
}

#define MSL_PRIVATE_LANES(name)                                                      \
    template <class T>                                                               \
    MSL_INLINE T __metal_simd_##name(T value, int line = __builtin_LINE()) {         \
        return metal::simd_##name(value, line);                                      \
    }
#define MSL_PRIVATE_SHUFFLE(name)                                                    \
    template <class T>                                                               \
    MSL_INLINE T __metal_simd_##name(T value, ushort argument, int line = __builtin_LINE()) { \
        return metal::simd_##name(value, argument, line);                            \
    }
MSL_PRIVATE_LANES(sum) MSL_PRIVATE_LANES(product) MSL_PRIVATE_LANES(min) MSL_PRIVATE_LANES(max)
MSL_PRIVATE_LANES(prefix_inclusive_sum) MSL_PRIVATE_LANES(prefix_exclusive_sum)
MSL_PRIVATE_LANES(prefix_inclusive_product) MSL_PRIVATE_LANES(prefix_exclusive_product)
MSL_PRIVATE_LANES(broadcast_first)
MSL_PRIVATE_SHUFFLE(broadcast) MSL_PRIVATE_SHUFFLE(shuffle) MSL_PRIVATE_SHUFFLE(shuffle_xor)
MSL_PRIVATE_SHUFFLE(shuffle_down) MSL_PRIVATE_SHUFFLE(shuffle_up)
MSL_PRIVATE_SHUFFLE(shuffle_rotate_down) MSL_PRIVATE_SHUFFLE(shuffle_rotate_up)
#undef MSL_PRIVATE_LANES
#undef MSL_PRIVATE_SHUFFLE

// Projects mention simd_xor of float, and never call it.
#if defined(__clang__) && __clang_major__ < 14
float msl_simd_xor_of_float();
#else
__attribute__((error("simd_xor is of integers"))) float msl_simd_xor_of_float();
#endif
template <class T>
MSL_INLINE T __metal_simd_xor(T value, int line = __builtin_LINE()) {
    if constexpr (metal::is_integral_v<T>)
        return metal::simd_xor(value, line);
    else
        return T(msl_simd_xor_of_float());
}
template <class T>
MSL_INLINE T __metal_simd_shuffle_and_fill_down(T value, T filling, ushort delta, ushort modulo,
                                                int line = __builtin_LINE()) {
    return metal::simd_shuffle_and_fill_down(value, filling, delta, modulo, line);
}
template <class T>
MSL_INLINE T __metal_simd_shuffle_and_fill_up(T value, T filling, ushort delta, ushort modulo,
                                              int line = __builtin_LINE()) {
    return metal::simd_shuffle_and_fill_up(value, filling, delta, modulo, line);
}
MSL_INLINE ushort __metal_get_simdgroup_size(ushort) { return MSL_LANES; }
MSL_INLINE ushort __metal_get_thread_index_in_simdgroup(ushort) { return static_cast<ushort>(msl_thread->lane); }

// <metal_limits> and <metal_array>.
#pragma once
#include "scalars.h"

namespace metal {

// What numeric_limits takes its members from: public kernels specialise it for their own types.
template <class T>
struct _numeric_limits_impl {
    static constexpr bool is_specialized = false;
};

#define MSL_FLOAT_LIMITS(T, largest, smallest, step, least, bits)                          \
    template <>                                                                            \
    struct _numeric_limits_impl<T> {                                                       \
        static constexpr bool is_specialized = true, is_signed = true, is_integer = false; \
        static constexpr bool is_exact = false, has_infinity = true, has_quiet_NaN = true; \
        static constexpr int digits = bits, radix = 2;                                     \
        static constexpr T max() { return T(largest); }                                    \
        static constexpr T min() { return T(smallest); }                                   \
        static constexpr T lowest() { return T(-(largest)); }                              \
        static constexpr T epsilon() { return T(step); }                                   \
        static constexpr T denorm_min() { return T(least); }                               \
        static constexpr T infinity() { return T(__builtin_inff()); }                      \
        static constexpr T quiet_NaN() { return T(__builtin_nanf("")); }                   \
        static constexpr T signaling_NaN() { return T(__builtin_nanf("")); }               \
    };
MSL_FLOAT_LIMITS(float, __FLT_MAX__, __FLT_MIN__, __FLT_EPSILON__, __FLT_DENORM_MIN__, 24)
MSL_FLOAT_LIMITS(half, 65504.0f, 6.103515625e-5f, 9.765625e-4f, 5.9604644775390625e-8f, 11)
MSL_FLOAT_LIMITS(bfloat, 3.38953139e38f, 1.17549435e-38f, 0.0078125f, 9.18354962e-41f, 8)
#undef MSL_FLOAT_LIMITS

namespace msl_detail {
template <class T>
struct integer_limits {
    static constexpr bool is_specialized = true, is_signed = T(-1) < T(0), is_integer = true;
    static constexpr bool is_exact = true, has_infinity = false, has_quiet_NaN = false;
    static constexpr int digits = 8 * sizeof(T) - is_signed, radix = 2;
    static constexpr T max() { return T(~uint64_t(0) >> (64 - digits)); }
    static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }
    static constexpr T lowest() { return min(); }
    static constexpr T epsilon() { return T(0); }
    static constexpr T denorm_min() { return T(0); }
    static constexpr T infinity() { return T(0); }
    static constexpr T quiet_NaN() { return T(0); }
    static constexpr T signaling_NaN() { return T(0); }
};
}  // namespace msl_detail

template <>
struct _numeric_limits_impl<char> : msl_detail::integer_limits<char> {};
template <>
struct _numeric_limits_impl<signed char> : msl_detail::integer_limits<signed char> {};
template <>
struct _numeric_limits_impl<uchar> : msl_detail::integer_limits<uchar> {};
template <>
struct _numeric_limits_impl<short> : msl_detail::integer_limits<short> {};
template <>
struct _numeric_limits_impl<ushort> : msl_detail::integer_limits<ushort> {};
template <>
struct _numeric_limits_impl<int> : msl_detail::integer_limits<int> {};
template <>
struct _numeric_limits_impl<uint> : msl_detail::integer_limits<uint> {};
template <>
struct _numeric_limits_impl<long> : msl_detail::integer_limits<long> {};
template <>
struct _numeric_limits_impl<ulong> : msl_detail::integer_limits<ulong> {};
template <>
struct _numeric_limits_impl<bool> {
    static constexpr bool is_specialized = true, is_signed = false, is_integer = true;
    static constexpr int digits = 1;
    static constexpr bool max() { return true; }
    static constexpr bool min() { return false; }
    static constexpr bool lowest() { return false; }
};
template <class T>
struct numeric_limits : _numeric_limits_impl<remove_cv_t<T>> {};

template <class T, size_t N>
struct array {
    T elements[N];
    MSL_INLINE constexpr T& operator[](size_t i) { return elements[MSL_INDEX(i, N)]; }
    MSL_INLINE constexpr const T& operator[](size_t i) const { return elements[MSL_INDEX(i, N)]; }
    MSL_INLINE constexpr T* data() { return elements; }
    MSL_INLINE constexpr const T* data() const { return elements; }
    MSL_INLINE constexpr T* begin() { return elements; }
    MSL_INLINE constexpr const T* begin() const { return elements; }
    MSL_INLINE constexpr T* end() { return elements + N; }
    MSL_INLINE constexpr const T* end() const { return elements + N; }
    static constexpr size_t size() { return N; }
    static constexpr bool empty() { return N == 0; }
};

}  // namespace metal

// What both engines' functions between lanes have in common: the types that these take, and how two values are combined.
// Metal has them for 8 to 32 bit integers, half and float, and their vectors.
#pragma once
#include "vector_operators.h"

namespace metal {
namespace msl_detail {

template <class T>
constexpr bool is_lane_scalar = is_any_of<T, char, signed char, uchar, short, ushort, int, uint, half, float>;
template <class T>
using if_lane_value = enable_if_t<is_lane_scalar<element_t<T>> || is_math_float<element_t<T>>>;
template <class T>
using if_lane_integer = enable_if_t<is_lane_scalar<element_t<T>> && is_integral_v<element_t<T>>>;

}  // namespace msl_detail

// Private to Apple's headers, and asked by public kernels: whether simd_ functions take a type.
template <class T>
struct __is_valid_simdgroup_type : bool_constant<msl_detail::is_lane_scalar<msl_detail::element_t<T>>> {};

namespace msl_detail {

struct Sum {
    template <class T>
    static MSL_INLINE T combine(T a, T b) {
        return T(a + b);
    }
    static constexpr int identity = 0;
};
struct Product {
    template <class T>
    static MSL_INLINE T combine(T a, T b) {
        return T(a * b);
    }
    static constexpr int identity = 1;
};
struct Maximum {
    template <class T>
    static MSL_INLINE T combine(T a, T b) {
        return metal::max(a, b);
    }
};
struct Minimum {
    template <class T>
    static MSL_INLINE T combine(T a, T b) {
        return metal::min(a, b);
    }
};
struct And {
    template <class T>
    static MSL_INLINE T combine(T a, T b) {
        return T(a & b);
    }
};
struct Or {
    template <class T>
    static MSL_INLINE T combine(T a, T b) {
        return T(a | b);
    }
};
struct Xor {
    template <class T>
    static MSL_INLINE T combine(T a, T b) {
        return T(a ^ b);
    }
};

}  // namespace msl_detail
}  // namespace metal

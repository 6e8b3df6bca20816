// <metal_relational>: questions about floating-point values, select, any, all. Those about NaN exist for bfloat too.
#pragma once
#include "math.h"

namespace metal {

#define MSL_QUESTION(name, expression)                                           \
    template <class T, class = enable_if_t<is_floating_point_v<T>>>              \
    MSL_INLINE bool name(T value) {                                              \
        float x = static_cast<float>(value);                                     \
        return expression;                                                       \
    }                                                                            \
    template <class T, int N, class = enable_if_t<is_floating_point_v<T>>>       \
    MSL_INLINE vec<bool, N> name(const vec<T, N>& v) {                           \
        return msl_detail::map<bool>([](T x) MSL_LAMBDA { return name(x); }, v); \
    }
MSL_QUESTION(isnan, __builtin_isnan(x))
MSL_QUESTION(isinf, __builtin_isinf_sign(x) != 0)
MSL_QUESTION(isfinite, __builtin_isfinite(x))
MSL_QUESTION(signbit, __builtin_signbit(x) != 0)
#undef MSL_QUESTION

MSL_INLINE bool isnormal(float x) { return __builtin_isnormal(x); }
MSL_INLINE bool isnormal(half h) {
    float x = __builtin_fabsf(static_cast<float>(h));
    return x >= 6.103515625e-5f && x <= 65504.0f;
}

template <class T, class = enable_if_t<is_floating_point_v<T>>>
MSL_INLINE bool isunordered(T a, T b) {
    return a != a || b != b;
}
template <class T, class = enable_if_t<is_floating_point_v<T>>>
MSL_INLINE bool isordered(T a, T b) {
    return a == a && b == b;
}

// select(a, b, c) is b where c holds, else a. Scalars must agree in type.
template <class T, class = enable_if_t<is_arithmetic_v<T>>>
MSL_INLINE T select(T a, T b, bool condition) {
    return condition ? b : a;
}
template <class A, class B, int N, class = msl_detail::if_vectors<A, B>>
MSL_INLINE msl_detail::vector_among_t<A, B> select(const A& a, const B& b, const vec<bool, N>& condition) {
    using V = msl_detail::vector_among_t<A, B>;
    using T = msl_detail::element_t<V>;
    return msl_detail::map<T>([](T x, T y, bool chosen) MSL_LAMBDA { return chosen ? y : x; }, V(a), V(b), condition);
}

MSL_INLINE bool all(bool b) { return b; }
MSL_INLINE bool any(bool b) { return b; }
MSL_INLINE bool all(const vec<bool, 2>& v) { return v.x && v.y; }
MSL_INLINE bool all(const vec<bool, 3>& v) { return v.x && v.y && v.z; }
MSL_INLINE bool all(const vec<bool, 4>& v) { return v.x && v.y && v.z && v.w; }
MSL_INLINE bool any(const vec<bool, 2>& v) { return v.x || v.y; }
MSL_INLINE bool any(const vec<bool, 3>& v) { return v.x || v.y || v.z; }
MSL_INLINE bool any(const vec<bool, 4>& v) { return v.x || v.y || v.z || v.w; }

}  // namespace metal

// packed_float3 and its kin: vectors without padding, converted to vec for arithmetic.
#pragma once
#include "vector_operators.h"

namespace metal {

#define MSL_PACKED_MEMBERS(N)                                                     \
    packed_vec() = default;                                                       \
    MSL_INLINE T& operator[](int i) { return (&x)[MSL_INDEX(i, N)]; }             \
    MSL_INLINE const T& operator[](int i) const { return (&x)[MSL_INDEX(i, N)]; } \
    template <int... I>                                                           \
    MSL_INLINE vec<T, sizeof...(I)> swz() const {                                 \
        return vec<T, sizeof...(I)>{(*this)[I]...};                               \
    }                                                                             \
    template <class U>                                                            \
    MSL_INLINE packed_vec& operator+=(const U& other) {                           \
        return *this = vec<T, N>(*this) + other;                                  \
    }                                                                             \
    template <class U>                                                            \
    MSL_INLINE packed_vec& operator*=(const U& other) {                           \
        return *this = vec<T, N>(*this) * other;                                  \
    }

template <class T>
struct packed_vec<T, 2> {
    T x, y;
    MSL_PACKED_MEMBERS(2)
    MSL_INLINE packed_vec(const vec<T, 2>& o) : x(o.x), y(o.y) {}
    MSL_INLINE packed_vec(T a, T b) : x(a), y(b) {}
    MSL_INLINE operator vec<T, 2>() const { return vec<T, 2>(x, y); }
};

template <class T>
struct packed_vec<T, 3> {
    T x, y, z;
    MSL_PACKED_MEMBERS(3)
    MSL_INLINE packed_vec(const vec<T, 3>& o) : x(o.x), y(o.y), z(o.z) {}
    MSL_INLINE packed_vec(T a, T b, T c) : x(a), y(b), z(c) {}
    MSL_INLINE operator vec<T, 3>() const { return vec<T, 3>(x, y, z); }
};

template <class T>
struct packed_vec<T, 4> {
    T x, y, z, w;
    MSL_PACKED_MEMBERS(4)
    MSL_INLINE packed_vec(const vec<T, 4>& o) : x(o.x), y(o.y), z(o.z), w(o.w) {}
    MSL_INLINE packed_vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
    MSL_INLINE operator vec<T, 4>() const { return vec<T, 4>(x, y, z, w); }
};
#undef MSL_PACKED_MEMBERS

#define MSL_PACKED_OPERATOR(op)                                                              \
    template <class T, int N>                                                                \
    MSL_INLINE vec<T, N> operator op(const packed_vec<T, N>& a, const packed_vec<T, N>& b) { \
        return vec<T, N>(a) op vec<T, N>(b);                                                 \
    }                                                                                        \
    template <class T, int N>                                                                \
    MSL_INLINE vec<T, N> operator op(const packed_vec<T, N>& a, const vec<T, N>& b) {        \
        return vec<T, N>(a) op b;                                                            \
    }                                                                                        \
    template <class T, int N>                                                                \
    MSL_INLINE vec<T, N> operator op(const vec<T, N>& a, const packed_vec<T, N>& b) {        \
        return a op vec<T, N>(b);                                                            \
    }                                                                                        \
    template <class T, int N, class S, class = msl_detail::if_arithmetic<S>>                 \
    MSL_INLINE vec<T, N> operator op(const packed_vec<T, N>& a, S b) {                       \
        return vec<T, N>(a) op b;                                                            \
    }                                                                                        \
    template <class T, int N, class S, class = msl_detail::if_arithmetic<S>>                 \
    MSL_INLINE vec<T, N> operator op(S a, const packed_vec<T, N>& b) {                       \
        return a op vec<T, N>(b);                                                            \
    }
MSL_PACKED_OPERATOR(+)
MSL_PACKED_OPERATOR(-)
MSL_PACKED_OPERATOR(*)
MSL_PACKED_OPERATOR(/)
#undef MSL_PACKED_OPERATOR

}  // namespace metal

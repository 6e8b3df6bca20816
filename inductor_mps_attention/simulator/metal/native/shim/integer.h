// <metal_integer>, and min, max, clamp, abs of integers: exact overloads, so that mixed arguments are ambiguous here as
// they are for Apple's compiler.
#pragma once
#include "math.h"

namespace metal {

#define MSL_FOR_INTEGERS(M) M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong)

#define MSL_INTEGER_COMMON(T)                                                                   \
    MSL_INLINE constexpr T max(T a, T b) { return a < b ? b : a; }                              \
    MSL_INLINE constexpr T min(T a, T b) { return b < a ? b : a; }                              \
    MSL_INLINE constexpr T clamp(T x, T low, T high) { return min(max(x, low), high); }         \
    MSL_INLINE constexpr T max3(T a, T b, T c) { return max(max(a, b), c); }                    \
    MSL_INLINE constexpr T min3(T a, T b, T c) { return min(min(a, b), c); }                    \
    MSL_INLINE constexpr T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); } \
    MSL_INLINE constexpr T abs(T x) { return x < T(0) ? T(-x) : x; }
MSL_FOR_INTEGERS(MSL_INTEGER_COMMON)
#undef MSL_INTEGER_COMMON
#undef MSL_FOR_INTEGERS

// These have forms for integers and for float, to all of which bfloat converts. Where strict mode does not refuse them
// they give one of their arguments.
template <class T, msl_detail::if_kindly_read<T> = 0>
MSL_INLINE T max(T a, T b) {
    return T(msl_detail::larger(a, b));
}
template <class T, msl_detail::if_kindly_read<T> = 0>
MSL_INLINE T min(T a, T b) {
    return T(msl_detail::smaller(a, b));
}
template <class T, msl_detail::if_kindly_read<T> = 0>
MSL_INLINE T clamp(T x, T low, T high) {
    return min(max(x, low), high);
}
template <class T, msl_detail::if_kindly_read<T> = 0>
MSL_INLINE T max3(T a, T b, T c) {
    return max(max(a, b), c);
}
template <class T, msl_detail::if_kindly_read<T> = 0>
MSL_INLINE T min3(T a, T b, T c) {
    return min(min(a, b), c);
}
template <class T, msl_detail::if_kindly_read<T> = 0>
MSL_INLINE T median3(T a, T b, T c) {
    return max(min(a, b), min(max(a, b), c));
}
template <class T, msl_detail::if_kindly_read<T> = 0>
MSL_INLINE T abs(T x) {
    return T(__builtin_fabsf(x));
}

template <class A, class B, msl_detail::if_integer_vectors<A, B> = 0>
MSL_INLINE auto max(const A& a, const B& b) {
    using V = msl_detail::vector_among_t<A, B>;
    using T = msl_detail::element_t<V>;
    return msl_detail::map<T>([](T x, T y) MSL_LAMBDA { return max(x, y); }, V(a), V(b));
}
template <class A, class B, msl_detail::if_integer_vectors<A, B> = 0>
MSL_INLINE auto min(const A& a, const B& b) {
    using V = msl_detail::vector_among_t<A, B>;
    using T = msl_detail::element_t<V>;
    return msl_detail::map<T>([](T x, T y) MSL_LAMBDA { return min(x, y); }, V(a), V(b));
}
template <class A, class B, class C, msl_detail::if_integer_vectors<A, B, C> = 0>
MSL_INLINE auto clamp(const A& x, const B& low, const C& high) {
    return min(max(x, low), high);
}
template <class T, int N, enable_if_t<msl_detail::is_math_integer<T>, int> = 0>
MSL_INLINE vec<T, N> abs(const vec<T, N>& v) {
    return msl_detail::map<T>([](T x) MSL_LAMBDA { return abs(x); }, v);
}

namespace msl_detail {

template <class T>
using Bits = make_unsigned_t<T>;
template <class T>
constexpr int WIDTH = 8 * sizeof(T);

template <class T>
MSL_INLINE T popcount_of(T x) {
    return T(__builtin_popcountll(Bits<T>(x)));
}
template <class T>
MSL_INLINE T clz_of(T x) {
    return x ? T(__builtin_clzll(Bits<T>(x)) - (64 - WIDTH<T>)) : T(WIDTH<T>);
}
template <class T>
MSL_INLINE T ctz_of(T x) {
    return x ? T(__builtin_ctzll(Bits<T>(x))) : T(WIDTH<T>);
}
template <class T>
MSL_INLINE T reverse_bits_of(T x) {
    Bits<T> reversed = 0;
    for (int bit = 0; bit < WIDTH<T>; ++bit) reversed |= Bits<T>((Bits<T>(x) >> bit & 1) << (WIDTH<T> - 1 - bit));
    return T(reversed);
}
template <class T>
MSL_INLINE T mulhi_of(T a, T b) {
    return T((static_cast<conditional_t<is_signed_v<T>, __int128, unsigned __int128>>(a) * b) >> WIDTH<T>);
}
template <class T>
MSL_INLINE T rotate_of(T x, T count) {
    int left = int(Bits<T>(count) % WIDTH<T>);
    return left ? T(Bits<T>(Bits<T>(x) << left) | Bits<T>(Bits<T>(x) >> (WIDTH<T> - left))) : x;
}
template <class T>
MSL_INLINE T saturated(__int128 exact) {
    constexpr __int128 top = (__int128(1) << (WIDTH<T> - is_signed_v<T>)) - 1, bottom = is_signed_v<T> ? -top - 1 : 0;
    return T(exact > top ? top : exact < bottom ? bottom : exact);
}
template <class T>
MSL_INLINE T addsat_of(T a, T b) {
    return saturated<T>(__int128(a) + b);
}
template <class T>
MSL_INLINE T subsat_of(T a, T b) {
    return saturated<T>(__int128(a) - b);
}
template <class T>
MSL_INLINE T hadd_of(T a, T b) {
    return T((__int128(a) + b) >> 1);
}
template <class T>
MSL_INLINE T rhadd_of(T a, T b) {
    return T((__int128(a) + b + 1) >> 1);
}
template <class T>
MSL_INLINE make_unsigned_t<T> absdiff_of(T a, T b) {
    return a < b ? Bits<T>(Bits<T>(b) - Bits<T>(a)) : Bits<T>(Bits<T>(a) - Bits<T>(b));
}
// `count` bits from `offset`, sign-extended for signed types.
template <class T>
MSL_INLINE T extract_bits_of(T x, uint offset, uint count) {
    if (count == 0) return T(0);
    Bits<T> moved = Bits<T>(Bits<T>(x) << (WIDTH<T> - offset - count));
    return T(T(moved) >> (WIDTH<T> - count));
}
template <class T>
MSL_INLINE T insert_bits_of(T base, T insert, uint offset, uint count) {
    if (count == 0) return base;
    Bits<T> mask = Bits<T>(Bits<T>(Bits<T>(~Bits<T>(0)) >> (WIDTH<T> - count)) << offset);
    return T((Bits<T>(base) & ~mask) | (Bits<T>(Bits<T>(insert) << offset) & mask));
}

}  // namespace msl_detail

#define MSL_INTEGER_UNARY(name)                                                                \
    template <class T, class = msl_detail::if_math_integer<T>>                                 \
    MSL_INLINE T name(T x) {                                                                   \
        return msl_detail::name##_of(x);                                                       \
    }                                                                                          \
    template <class T, int N, class = msl_detail::if_math_integer<T>>                          \
    MSL_INLINE vec<T, N> name(const vec<T, N>& v) {                                            \
        return msl_detail::map<T>([](T x) MSL_LAMBDA { return msl_detail::name##_of(x); }, v); \
    }
MSL_INTEGER_UNARY(popcount)
MSL_INTEGER_UNARY(clz)
MSL_INTEGER_UNARY(ctz)
MSL_INTEGER_UNARY(reverse_bits)
#undef MSL_INTEGER_UNARY

#define MSL_INTEGER_BINARY(name)                                                                          \
    template <class T, class = msl_detail::if_math_integer<T>>                                            \
    MSL_INLINE auto name(T a, T b) {                                                                      \
        return msl_detail::name##_of(a, b);                                                               \
    }                                                                                                     \
    template <class T, int N, class = msl_detail::if_math_integer<T>>                                     \
    MSL_INLINE auto name(const vec<T, N>& a, const vec<T, N>& b) {                                        \
        using R = decltype(msl_detail::name##_of(T(), T()));                                              \
        return msl_detail::map<R>([](T x, T y) MSL_LAMBDA { return msl_detail::name##_of(x, y); }, a, b); \
    }
MSL_INTEGER_BINARY(mulhi)
MSL_INTEGER_BINARY(rotate)
MSL_INTEGER_BINARY(addsat)
MSL_INTEGER_BINARY(subsat)
MSL_INTEGER_BINARY(hadd)
MSL_INTEGER_BINARY(rhadd)
MSL_INTEGER_BINARY(absdiff)
#undef MSL_INTEGER_BINARY

template <class T, class = msl_detail::if_math_integer<T>>
MSL_INLINE T madhi(T a, T b, T c) {
    return T(msl_detail::mulhi_of(a, b) + c);
}
template <class T, class = msl_detail::if_math_integer<T>>
MSL_INLINE T extract_bits(T x, uint offset, uint count) {
    return msl_detail::extract_bits_of(x, offset, count);
}
template <class T, int N, class = msl_detail::if_math_integer<T>>
MSL_INLINE vec<T, N> extract_bits(const vec<T, N>& v, uint offset, uint count) {
    return msl_detail::map<T>([=](T x) MSL_LAMBDA { return msl_detail::extract_bits_of(x, offset, count); }, v);
}
template <class T, class = msl_detail::if_math_integer<T>>
MSL_INLINE T insert_bits(T base, T insert, uint offset, uint count) {
    return msl_detail::insert_bits_of(base, insert, offset, count);
}
template <class T, int N, class = msl_detail::if_math_integer<T>>
MSL_INLINE vec<T, N> insert_bits(const vec<T, N>& base, const vec<T, N>& insert, uint offset, uint count) {
    return msl_detail::map<T>([=](T x, T y) MSL_LAMBDA { return msl_detail::insert_bits_of(x, y, offset, count); },
                              base, insert);
}

}  // namespace metal

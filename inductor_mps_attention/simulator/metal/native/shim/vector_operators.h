// Element-wise operators of vectors, and `map`, which all vector functions of the library are made of.
#pragma once
#include "vector.h"

namespace metal {
namespace msl_detail {

// map<R>(f, a, ...) is the vector of f(a.x, ...), f(a.y, ...), ... with elements of type R.
template <class R, class F, class T>
MSL_INLINE constexpr vec<R, 2> map(F f, const vec<T, 2>& a) {
    return vec<R, 2>(f(a.x), f(a.y));
}
template <class R, class F, class T>
MSL_INLINE constexpr vec<R, 3> map(F f, const vec<T, 3>& a) {
    return vec<R, 3>(f(a.x), f(a.y), f(a.z));
}
template <class R, class F, class T>
MSL_INLINE constexpr vec<R, 4> map(F f, const vec<T, 4>& a) {
    return vec<R, 4>(f(a.x), f(a.y), f(a.z), f(a.w));
}
template <class R, class F, class T, class U>
MSL_INLINE constexpr vec<R, 2> map(F f, const vec<T, 2>& a, const vec<U, 2>& b) {
    return vec<R, 2>(f(a.x, b.x), f(a.y, b.y));
}
template <class R, class F, class T, class U>
MSL_INLINE constexpr vec<R, 3> map(F f, const vec<T, 3>& a, const vec<U, 3>& b) {
    return vec<R, 3>(f(a.x, b.x), f(a.y, b.y), f(a.z, b.z));
}
template <class R, class F, class T, class U>
MSL_INLINE constexpr vec<R, 4> map(F f, const vec<T, 4>& a, const vec<U, 4>& b) {
    return vec<R, 4>(f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w));
}
template <class R, class F, class T, class U, class V>
MSL_INLINE constexpr vec<R, 2> map(F f, const vec<T, 2>& a, const vec<U, 2>& b, const vec<V, 2>& c) {
    return vec<R, 2>(f(a.x, b.x, c.x), f(a.y, b.y, c.y));
}
template <class R, class F, class T, class U, class V>
MSL_INLINE constexpr vec<R, 3> map(F f, const vec<T, 3>& a, const vec<U, 3>& b, const vec<V, 3>& c) {
    return vec<R, 3>(f(a.x, b.x, c.x), f(a.y, b.y, c.y), f(a.z, b.z, c.z));
}
template <class R, class F, class T, class U, class V>
MSL_INLINE constexpr vec<R, 4> map(F f, const vec<T, 4>& a, const vec<U, 4>& b, const vec<V, 4>& c) {
    return vec<R, 4>(f(a.x, b.x, c.x), f(a.y, b.y, c.y), f(a.z, b.z, c.z), f(a.w, b.w, c.w));
}

// The one vector type among the arguments of a call whose other arguments are scalars or that type.
template <class... A>
struct vector_among;
template <class A>
struct vector_among<A> {
    using type = A;
};
template <class A, class... B>
struct vector_among<A, B...> {
    using type = conditional_t<is_vector_v<A>, A, typename vector_among<B...>::type>;
};
template <class... A>
using vector_among_t = typename vector_among<A...>::type;

// Whether the arguments are one vector type and scalars, the way Metal widens scalars in calls.
template <class V, class... A>
constexpr bool fits_vector =
    is_vector_v<V> && ((is_same_v<A, V> || (is_arithmetic_v<A> && !is_same_v<A, bfloat>)) && ...);
template <class... A>
using if_vectors = enable_if_t<fits_vector<vector_among_t<A...>, A...>>;
template <class... A>
using if_float_vectors =
    enable_if_t<fits_vector<vector_among_t<A...>, A...> && is_math_float<element_t<vector_among_t<A...>>>>;
template <class... A>
using if_integer_vectors =
    enable_if_t<fits_vector<vector_among_t<A...>, A...> && is_math_integer<element_t<vector_among_t<A...>>>, int>;

}  // namespace msl_detail

#define MSL_ELEMENTWISE_OPERATOR(op)                                                     \
    template <class T, int N>                                                            \
    MSL_INLINE constexpr vec<T, N> operator op(const vec<T, N>& a, const vec<T, N>& b) { \
        return msl_detail::map<T>([](T p, T q) MSL_LAMBDA { return T(p op q); }, a, b);  \
    }                                                                                    \
    template <class T, int N, class S, class = msl_detail::if_arithmetic<S>>             \
    MSL_INLINE constexpr vec<T, N> operator op(const vec<T, N>& a, S s) {                \
        return msl_detail::map<T>([q = T(s)](T p) MSL_LAMBDA { return T(p op q); }, a);  \
    }                                                                                    \
    template <class T, int N, class S, class = msl_detail::if_arithmetic<S>>             \
    MSL_INLINE constexpr vec<T, N> operator op(S s, const vec<T, N>& b) {                \
        return msl_detail::map<T>([p = T(s)](T q) MSL_LAMBDA { return T(p op q); }, b);  \
    }

#define MSL_COMPARISON_OPERATOR(op)                                                         \
    template <class T, int N>                                                               \
    MSL_INLINE constexpr vec<bool, N> operator op(const vec<T, N>& a, const vec<T, N>& b) { \
        return msl_detail::map<bool>([](T p, T q) MSL_LAMBDA { return p op q; }, a, b);     \
    }                                                                                       \
    template <class T, int N, class S, class = msl_detail::if_arithmetic<S>>                \
    MSL_INLINE constexpr vec<bool, N> operator op(const vec<T, N>& a, S s) {                \
        return msl_detail::map<bool>([q = T(s)](T p) MSL_LAMBDA { return p op q; }, a);     \
    }                                                                                       \
    template <class T, int N, class S, class = msl_detail::if_arithmetic<S>>                \
    MSL_INLINE constexpr vec<bool, N> operator op(S s, const vec<T, N>& b) {                \
        return msl_detail::map<bool>([p = T(s)](T q) MSL_LAMBDA { return p op q; }, b);     \
    }

MSL_ELEMENTWISE_OPERATOR(+)
MSL_ELEMENTWISE_OPERATOR(-)
MSL_ELEMENTWISE_OPERATOR(*)
MSL_ELEMENTWISE_OPERATOR(/)
MSL_ELEMENTWISE_OPERATOR(%)
MSL_ELEMENTWISE_OPERATOR(&)
MSL_ELEMENTWISE_OPERATOR(|)
MSL_ELEMENTWISE_OPERATOR(^)
MSL_ELEMENTWISE_OPERATOR(<<)
MSL_ELEMENTWISE_OPERATOR(>>)
MSL_COMPARISON_OPERATOR(==)
MSL_COMPARISON_OPERATOR(!=)
MSL_COMPARISON_OPERATOR(<)
MSL_COMPARISON_OPERATOR(>)
MSL_COMPARISON_OPERATOR(<=)
MSL_COMPARISON_OPERATOR(>=)
MSL_COMPARISON_OPERATOR(&&)
MSL_COMPARISON_OPERATOR(||)
#undef MSL_ELEMENTWISE_OPERATOR
#undef MSL_COMPARISON_OPERATOR

template <class T, int N>
MSL_INLINE constexpr vec<T, N> operator+(const vec<T, N>& a) {
    return a;
}
template <class T, int N>
MSL_INLINE constexpr vec<T, N> operator-(const vec<T, N>& a) {
    return msl_detail::map<T>([](T p) MSL_LAMBDA { return T(-p); }, a);
}
template <class T, int N>
MSL_INLINE constexpr vec<T, N> operator~(const vec<T, N>& a) {
    return msl_detail::map<T>([](T p) MSL_LAMBDA { return T(~p); }, a);
}
template <class T, int N>
MSL_INLINE constexpr vec<bool, N> operator!(const vec<T, N>& a) {
    return msl_detail::map<bool>([](T p) MSL_LAMBDA { return !p; }, a);
}

}  // namespace metal

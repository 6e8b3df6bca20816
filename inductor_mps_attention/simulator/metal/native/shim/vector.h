// vec<T, 2..4> with Metal's sizes, alignments and constructors.
#pragma once
#include "scalars.h"

namespace metal {

template <class T, int N>
struct vec;
template <class T, int Columns, int Rows>
struct matrix;
template <class T, int N>
struct packed_vec;

template <class T>
struct is_vector : false_type {};
template <class T, int N>
struct is_vector<vec<T, N>> : true_type {};
template <class T>
constexpr bool is_vector_v = is_vector<remove_cv_t<T>>::value;

template <class T>
struct vec_elements {
    static constexpr int value = 1;
};
template <class T, int N>
struct vec_elements<vec<T, N>> {
    static constexpr int value = N;
};
template <class T, int N>
struct vec_elements<packed_vec<T, N>> {
    static constexpr int value = N;
};

namespace msl_detail {

// The element type of a vector; a scalar is its own.
template <class T>
struct element {
    using type = T;
};
template <class T, int N>
struct element<vec<T, N>> {
    using type = T;
};
template <class T>
using element_t = typename element<remove_cv_t<T>>::type;

// The target of an assignment to a swizzle, `v.xz = ...`.
template <class V, int... I>
struct SwizzleTarget {
    V& target;
    using Value = vec<element_t<V>, sizeof...(I)>;

    MSL_INLINE operator Value() const { return target.template swz<I...>(); }
    MSL_INLINE SwizzleTarget& operator=(const Value& value) {
        int next = 0;
        ((target[I] = value[next++]), ...);
        return *this;
    }
    template <class Other>
    MSL_INLINE SwizzleTarget& operator+=(const Other& other) {
        return *this = Value(*this) + other;
    }
    template <class Other>
    MSL_INLINE SwizzleTarget& operator-=(const Other& other) {
        return *this = Value(*this) - other;
    }
    template <class Other>
    MSL_INLINE SwizzleTarget& operator*=(const Other& other) {
        return *this = Value(*this) * other;
    }
    template <class Other>
    MSL_INLINE SwizzleTarget& operator/=(const Other& other) {
        return *this = Value(*this) / other;
    }
};

template <class... S>
using if_scalars = enable_if_t<(is_arithmetic_v<S> && ...)>;

}  // namespace msl_detail

// Members that all sizes share. A swizzle `v.xz` is translated to `v.template swz<0, 2>()`.
#define MSL_VECTOR_MEMBERS(N)                                                               \
    using elem_type = T;                                                                    \
    vec() = default;                                                                        \
    MSL_INLINE constexpr T& operator[](int i) { return (&x)[MSL_INDEX(i, N)]; }             \
    MSL_INLINE constexpr const T& operator[](int i) const { return (&x)[MSL_INDEX(i, N)]; } \
    template <int... I>                                                                     \
    MSL_INLINE vec<T, sizeof...(I)> swz() const {                                           \
        return vec<T, sizeof...(I)>{(*this)[I]...};                                         \
    }                                                                                       \
    template <int... I>                                                                     \
    MSL_INLINE msl_detail::SwizzleTarget<vec, I...> lswz() {                                \
        return {*this};                                                                     \
    }                                                                                       \
    MSL_VECTOR_ASSIGNMENT(+)                                                                \
    MSL_VECTOR_ASSIGNMENT(-)                                                                \
    MSL_VECTOR_ASSIGNMENT(*)                                                                \
    MSL_VECTOR_ASSIGNMENT(/)                                                                \
    MSL_VECTOR_ASSIGNMENT(%)                                                                \
    MSL_VECTOR_ASSIGNMENT(&)                                                                \
    MSL_VECTOR_ASSIGNMENT(|)                                                                \
    MSL_VECTOR_ASSIGNMENT(^)                                                                \
    MSL_VECTOR_ASSIGNMENT(<<)                                                               \
    MSL_VECTOR_ASSIGNMENT(>>)

#define MSL_VECTOR_ASSIGNMENT(op)                      \
    template <class U>                                 \
    MSL_INLINE vec& operator op## = (const U& other) { \
        return *this = *this op other;                 \
    }

template <class T>
struct vec<T, 1> {
    T x;
    vec() = default;
    MSL_INLINE constexpr vec(T value) : x(value) {}
    MSL_INLINE T& operator[](int) { return x; }
    MSL_INLINE const T& operator[](int) const { return x; }
};

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
    union {
        T x;
        T r;
    };
    union {
        T y;
        T g;
    };
    MSL_VECTOR_MEMBERS(2)

    template <class S, class = msl_detail::if_scalars<S>>
    MSL_INLINE constexpr vec(S s) : x(T(s)), y(T(s)) {}
    template <class U, class = enable_if_t<!is_same_v<U, T>>>
    MSL_INLINE constexpr explicit vec(const vec<U, 2>& o) : x(T(o.x)), y(T(o.y)) {}
    template <class U>
    MSL_INLINE constexpr explicit vec(const packed_vec<U, 2>& o) : x(T(o.x)), y(T(o.y)) {}
    template <class A, class B, class = msl_detail::if_scalars<A, B>>
    MSL_INLINE constexpr vec(A a, B b) : x(T(a)), y(T(b)) {}
};

// As large as vec<T, 4>. Copies take the three elements only: the fourth is padding, which nobody need have written.
template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
    union {
        T x;
        T r;
    };
    union {
        T y;
        T g;
    };
    union {
        T z;
        T b;
    };
    MSL_VECTOR_MEMBERS(3)

#if MSL_CHECK
    MSL_INLINE vec(const vec& o) : x(o.x), y(o.y), z(o.z) {}
    MSL_INLINE vec& operator=(const vec& o) {
        x = o.x;
        y = o.y;
        z = o.z;
        return *this;
    }
#endif
    template <class S, class = msl_detail::if_scalars<S>>
    MSL_INLINE constexpr vec(S s) : x(T(s)), y(T(s)), z(T(s)) {}
    template <class U, class = enable_if_t<!is_same_v<U, T>>>
    MSL_INLINE constexpr explicit vec(const vec<U, 3>& o) : x(T(o.x)), y(T(o.y)), z(T(o.z)) {}
    template <class U>
    MSL_INLINE constexpr explicit vec(const packed_vec<U, 3>& o) : x(T(o.x)), y(T(o.y)), z(T(o.z)) {}
    template <class A, class B, class C, class = msl_detail::if_scalars<A, B, C>>
    MSL_INLINE constexpr vec(A a, B b, C c) : x(T(a)), y(T(b)), z(T(c)) {}
    // In braces missing elements are zero; strict mode refuses it in parentheses, as Metal does.
    template <class A, class B, class = msl_detail::if_scalars<A, B>>
    MSL_INLINE constexpr vec(A a, B b) : x(T(a)), y(T(b)), z(T(0)) {}
    template <class A, class = msl_detail::if_scalars<A>>
    MSL_INLINE constexpr vec(const vec<T, 2>& ab, A c) : x(ab.x), y(ab.y), z(T(c)) {}
    template <class A, class = msl_detail::if_scalars<A>>
    MSL_INLINE constexpr vec(A a, const vec<T, 2>& bc) : x(T(a)), y(bc.x), z(bc.y) {}
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
    union {
        T x;
        T r;
    };
    union {
        T y;
        T g;
    };
    union {
        T z;
        T b;
    };
    union {
        T w;
        T a;
    };
    MSL_VECTOR_MEMBERS(4)

    template <class S, class = msl_detail::if_scalars<S>>
    MSL_INLINE constexpr vec(S s) : x(T(s)), y(T(s)), z(T(s)), w(T(s)) {}
    template <class U, class = enable_if_t<!is_same_v<U, T>>>
    MSL_INLINE constexpr explicit vec(const vec<U, 4>& o) : x(T(o.x)), y(T(o.y)), z(T(o.z)), w(T(o.w)) {}
    template <class U>
    MSL_INLINE constexpr explicit vec(const packed_vec<U, 4>& o) : x(T(o.x)), y(T(o.y)), z(T(o.z)), w(T(o.w)) {}
    template <class A, class B, class C, class D, class = msl_detail::if_scalars<A, B, C, D>>
    MSL_INLINE constexpr vec(A a, B b, C c, D d) : x(T(a)), y(T(b)), z(T(c)), w(T(d)) {}
    template <class A, class B, class C, class = msl_detail::if_scalars<A, B, C>>
    MSL_INLINE constexpr vec(A a, B b, C c) : x(T(a)), y(T(b)), z(T(c)), w(T(0)) {}
    template <class A, class B, class = msl_detail::if_scalars<A, B>>
    MSL_INLINE constexpr vec(A a, B b) : x(T(a)), y(T(b)), z(T(0)), w(T(0)) {}
    MSL_INLINE constexpr vec(const vec<T, 2>& ab, const vec<T, 2>& cd) : x(ab.x), y(ab.y), z(cd.x), w(cd.y) {}
    template <class A, class = msl_detail::if_scalars<A>>
    MSL_INLINE constexpr vec(const vec<T, 3>& abc, A d) : x(abc.x), y(abc.y), z(abc.z), w(T(d)) {}
    template <class A, class = msl_detail::if_scalars<A>>
    MSL_INLINE constexpr vec(A a, const vec<T, 3>& bcd) : x(T(a)), y(bcd.x), z(bcd.y), w(bcd.z) {}
    template <class A, class B, class = msl_detail::if_scalars<A, B>>
    MSL_INLINE constexpr vec(const vec<T, 2>& ab, A c, B d) : x(ab.x), y(ab.y), z(T(c)), w(T(d)) {}
    template <class A, class B, class = msl_detail::if_scalars<A, B>>
    MSL_INLINE constexpr vec(A a, const vec<T, 2>& bc, B d) : x(T(a)), y(bc.x), z(bc.y), w(T(d)) {}
    template <class A, class B, class = msl_detail::if_scalars<A, B>>
    MSL_INLINE constexpr vec(A a, B b, const vec<T, 2>& cd) : x(T(a)), y(T(b)), z(cd.x), w(cd.y) {}
};

#undef MSL_VECTOR_MEMBERS
#undef MSL_VECTOR_ASSIGNMENT

}  // namespace metal

// <metal_simdgroup_matrix>: 8x8 matrices spread over a simdgroup, in Apple's layout as kernels see it (thread.h).
#pragma once
#include "product.h"
#include "type_names.h"

namespace metal {

namespace msl_detail {
template <class T>
constexpr bool is_simdgroup_matrix_element = is_any_of<T, float, half, bfloat>;

MSL_INLINE uint own_row() { return own_hardware_lane() >> 2; }
MSL_INLINE uint own_column() { return (own_hardware_lane() & 3u) * 2; }

// Exchanges rows and columns of a matrix that is held two elements a lane.
MSL_INLINE uint transposed_words(uint pair) {
    uint moved;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(moved) : "r"(pair));
    return moved;
}
template <class T>
MSL_INLINE vec<T, 2> transposed(vec<T, 2> pair) {
    if constexpr (sizeof(T) == 2) {
        return as_type<vec<T, 2>>(transposed_words(as_type<uint>(pair)));
    } else {
        uint x = __float_as_uint(pair.x), y = __float_as_uint(pair.y);
        uint low = transposed_words(__byte_perm(x, y, 0x5410)), high = transposed_words(__byte_perm(x, y, 0x7632));
        return vec<T, 2>(__uint_as_float(__byte_perm(low, high, 0x5410)),
                         __uint_as_float(__byte_perm(low, high, 0x7632)));
    }
}
}  // namespace msl_detail

// A product wants its right operand transposed. So a matrix is held as it is, transposed, or both; the other form is
// made when first asked for. All of the flags are known when the kernel is compiled, and leave no instructions.
template <class T, int Columns, int Rows>
struct simdgroup_matrix {
    static_assert(Columns == 8 && Rows == 8, "simdgroup_matrix: only 8x8 matrices exist");
    static_assert(msl_detail::is_simdgroup_matrix_element<T>, "simdgroup_matrix: elements are float, half or bfloat");
    using Pair = vec<T, 2>;
    mutable Pair straight, flipped;
    mutable bool has_straight, has_flipped;
    float2 idle = float2(0.0f);  // of sums: see product.h

#ifdef MSL_POISON
    MSL_INLINE simdgroup_matrix() : straight(T(__builtin_nanf(""))), has_straight(true), has_flipped(false) {}
#else
    MSL_INLINE simdgroup_matrix() : has_straight(true), has_flipped(false) {}
#endif
    MSL_INLINE explicit simdgroup_matrix(T diagonal) : has_straight(true), has_flipped(true) {
        uint row = msl_detail::own_row(), column = msl_detail::own_column();
        straight.x = row == column ? diagonal : T(0);
        straight.y = row == column + 1 ? diagonal : T(0);
        flipped = straight;
    }
    MSL_INLINE const Pair& rows() const {
        if (!has_straight) straight = msl_detail::transposed(flipped);
        has_straight = true;
        return straight;
    }
    MSL_INLINE const Pair& columns() const {
        if (!has_flipped) flipped = msl_detail::transposed(straight);
        has_flipped = true;
        return flipped;
    }
    MSL_INLINE void set(Pair elements) {
        straight = elements;
        has_straight = true;
        has_flipped = false;
    }
    MSL_INLINE void set_flipped(Pair elements) {
        flipped = elements;
        has_straight = false;
        has_flipped = true;
    }
    MSL_INLINE Pair& thread_elements() {
        rows();
        has_flipped = false;
        return straight;
    }
    MSL_INLINE const Pair& thread_elements() const { return rows(); }
};

template <class T, int Columns = 8, int Rows = Columns>
MSL_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, Columns, Rows> matrix;
    matrix.straight = matrix.flipped = vec<T, 2>(value);
    matrix.has_straight = matrix.has_flipped = true;
    return matrix;
}

namespace msl_detail {
template <class A, class B>
MSL_INLINE float2 multiply(const simdgroup_matrix<A, 8, 8>& a, const simdgroup_matrix<B, 8, 8>& b, float2 c,
                           float2& idle) {
    if constexpr (is_same_v<A, B> && sizeof(A) == 2) {
        return multiply_16_bit(as_type<uint>(a.rows()), as_type<uint>(b.columns()), c, idle, A());
    } else {
#if MSL_EXACT_FLOAT
        return multiply_exact(float2(a.rows().x, a.rows().y), float2(b.rows().x, b.rows().y), c);
#else
        return multiply_split(float2(a.rows().x, a.rows().y), float2(b.columns().x, b.columns().y), c);
#endif
    }
}
template <class D>
MSL_INLINE void set_sums(simdgroup_matrix<D, 8, 8>& d, float2 sums, float2 idle) {
    d.set(vec<D, 2>(static_cast<D>(sums.x), static_cast<D>(sums.y)));
#if !MSL_REZERO
    d.idle = idle;
#endif
}
}  // namespace msl_detail

// d = a * b + c. Products and sums are float, rounded once to d's type.
template <class D, class A, class B, class C>
MSL_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                              const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<C, 8, 8>& c,
                                              int = 0) {
    float2 idle = c.idle;
    float2 sums = msl_detail::multiply(a, b, float2(float(c.rows().x), float(c.rows().y)), idle);
    msl_detail::set_sums(d, sums, idle);
}

template <class D, class A, class B>
MSL_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                   const simdgroup_matrix<B, 8, 8>& b) {
    float2 idle = float2(0.0f);
    float2 sums = msl_detail::multiply(a, b, float2(0.0f), idle);
    msl_detail::set_sums(d, sums, idle);
}

template <class T>
MSL_INLINE simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8>& a, const simdgroup_matrix<T, 8, 8>& b) {
    simdgroup_matrix<T, 8, 8> d;
    simdgroup_multiply(d, a, b);
    return d;
}

namespace msl_detail {
// A pair lies in one aligned piece or does not. In threadgroup memory the compiler knows and joins two accesses itself;
// in device memory the address tells.
template <class T>
MSL_INLINE bool is_pair(const T* first) {
    return !__isShared(first) && (reinterpret_cast<ulong>(first) & (2 * sizeof(T) - 1)) == 0;
}
template <class T>
MSL_INLINE vec<T, 2> load_pair(const T* first) {
    if (is_pair(first)) return *reinterpret_cast<const vec<T, 2>*>(first);
    return vec<T, 2>(first[0], first[1]);
}
template <class T>
MSL_INLINE void store_pair(T* first, vec<T, 2> pair) {
    if (is_pair(first)) {
        *reinterpret_cast<vec<T, 2>*>(first) = pair;
    } else {
        first[0] = pair.x;
        first[1] = pair.y;
    }
}
}  // namespace msl_detail

// Element (row, column) lies at pointer[row * elements_per_row + column], after moving by origin = (column, row).
template <class T>
MSL_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& d, const T* pointer, ulong elements_per_row = 8,
                               ulong2 origin = ulong2(0), bool transpose_matrix = false) {
    const T* first = pointer + (origin.y + msl_detail::own_row()) * elements_per_row + origin.x;
    vec<T, 2> pair = msl_detail::load_pair(first + msl_detail::own_column());
    if (transpose_matrix)
        d.set_flipped(pair);
    else
        d.set(pair);
}

template <class T>
MSL_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8>& a, T* pointer, ulong elements_per_row = 8,
                                ulong2 origin = ulong2(0), bool transpose_matrix = false) {
    T* first = pointer + (origin.y + msl_detail::own_row()) * elements_per_row + origin.x;
    msl_detail::store_pair(first + msl_detail::own_column(), transpose_matrix ? a.columns() : a.rows());
}

}  // namespace metal

typedef metal::simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef metal::simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef metal::simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

namespace metal {
using MSL_ROOT::simdgroup_bfloat8x8;
using MSL_ROOT::simdgroup_float8x8;
using MSL_ROOT::simdgroup_half8x8;
}  // namespace metal

// <metal_simdgroup_matrix>: 8x8 matrices spread over a simdgroup. Lane l holds row (l/4 & 4) + l/2 % 4 and the two
// columns from (l/4 & 2) * 2 + l % 2 * 2, as on Apple GPUs; kernels depend on it through thread_elements().
#pragma once
#include "type_names.h"

namespace metal {

namespace msl_detail {
template <class T>
constexpr bool is_simdgroup_matrix_element = is_any_of<T, float, half, bfloat>;

template <class T>
MSL_INLINE MslPair widened(const vec<T, 2>& elements) {
    return {static_cast<float>(elements.x), static_cast<float>(elements.y)};
}
template <class T>
MSL_INLINE vec<T, 2> narrowed(MslPair pair) {
    vec<T, 2> elements;
    elements.x = static_cast<T>(pair.x);
    elements.y = static_cast<T>(pair.y);
    return elements;
}
}  // namespace msl_detail

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
    static_assert(Columns == 8 && Rows == 8, "simdgroup_matrix: only 8x8 matrices exist");
    static_assert(msl_detail::is_simdgroup_matrix_element<T>, "simdgroup_matrix: elements are float, half or bfloat");
    vec<T, 2> elements;

    simdgroup_matrix() = default;
    MSL_INLINE explicit simdgroup_matrix(T diagonal) {
        uint row = msl_thread->matrix_row, column = msl_thread->matrix_column;
        elements.x = row == column ? diagonal : T(0);
        elements.y = row == column + 1 ? diagonal : T(0);
    }
    MSL_INLINE vec<T, 2>& thread_elements() { return elements; }
    MSL_INLINE const vec<T, 2>& thread_elements() const { return elements; }
};

template <class T, int Columns = 8, int Rows = Columns>
MSL_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, Columns, Rows> matrix;
    matrix.elements.x = value;
    matrix.elements.y = value;
    return matrix;
}

// d = a * b + c. Products and sums are float, rounded once to d's type.
template <class D, class A, class B, class C>
MSL_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                              const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<C, 8, 8>& c,
                                              int line = __builtin_LINE()) {
    d.elements = msl_detail::narrowed<D>(msl_product(msl_detail::widened(a.elements), msl_detail::widened(b.elements),
                                                     msl_detail::widened(c.elements), line));
}

template <class D, class A, class B>
MSL_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                   const simdgroup_matrix<B, 8, 8>& b, int line = __builtin_LINE()) {
    d.elements = msl_detail::narrowed<D>(
        msl_product(msl_detail::widened(a.elements), msl_detail::widened(b.elements), {0.0f, 0.0f}, line));
}

template <class T>
MSL_INLINE simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8>& a, const simdgroup_matrix<T, 8, 8>& b) {
    simdgroup_matrix<T, 8, 8> d;
    simdgroup_multiply(d, a, b, 0);
    return d;
}

// Element (row, column) lies at pointer[row * elements_per_row + column], after moving by origin = (column, row).
template <class T>
MSL_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& d, const T* pointer, ulong elements_per_row = 8,
                               ulong2 origin = ulong2(0), bool transpose_matrix = false) {
    ulong row = msl_thread->matrix_row, column = msl_thread->matrix_column;
    const T* first = pointer + origin.y * elements_per_row + origin.x;
    if (transpose_matrix) {
        d.elements.x = first[column * elements_per_row + row];
        d.elements.y = first[(column + 1) * elements_per_row + row];
    } else {
        d.elements.x = first[row * elements_per_row + column];
        d.elements.y = first[row * elements_per_row + column + 1];
    }
}

template <class T>
MSL_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8>& a, T* pointer, ulong elements_per_row = 8,
                                ulong2 origin = ulong2(0), bool transpose_matrix = false) {
    ulong row = msl_thread->matrix_row, column = msl_thread->matrix_column;
    T* first = pointer + origin.y * elements_per_row + origin.x;
    if (transpose_matrix) {
        first[column * elements_per_row + row] = a.elements.x;
        first[(column + 1) * elements_per_row + row] = a.elements.y;
    } else {
        first[row * elements_per_row + column] = a.elements.x;
        first[row * elements_per_row + column + 1] = a.elements.y;
    }
}

}  // namespace metal

typedef metal::simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef metal::simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef metal::simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

namespace metal {
using ::simdgroup_bfloat8x8;
using ::simdgroup_float8x8;
using ::simdgroup_half8x8;
}  // namespace metal

// What some texts build a simdgroup matrix of their own on, instead of simdgroup_matrix: vec<T, 64>, of which a lane
// holds its two elements, and Apple's compiler's function for their product.
#pragma once
#include "simdgroup_matrix.h"

namespace metal {
template <class T>
struct vec<T, 64> {
    vec<T, 2> elements;
};

namespace msl_detail {
template <class T>
MSL_INLINE simdgroup_matrix<T, 8, 8> stored_matrix(const vec<T, 64>& storage) {
    simdgroup_matrix<T, 8, 8> matrix;
    matrix.thread_elements() = storage.elements;
    return matrix;
}
}  // namespace msl_detail
}  // namespace metal

template <class A, class B, class C, class D>
MSL_INLINE metal::vec<D, 64> __metal_simdgroup_matrix_8x8_multiply_accumulate(const metal::vec<A, 64>& a,
                                                                              const metal::vec<B, 64>& b,
                                                                              const metal::vec<C, 64>& c,
                                                                              const metal::vec<D, 64>&,
                                                                              int line = __builtin_LINE()) {
    using metal::msl_detail::stored_matrix;
    metal::simdgroup_matrix<D, 8, 8> d;
    metal::simdgroup_multiply_accumulate(d, stored_matrix(a), stored_matrix(b), stored_matrix(c), line);
    return {d.thread_elements()};
}

// matrix<T, Columns, Rows>: float4x4 and its kin, stored by columns.
#pragma once
#include "vector_operators.h"

namespace metal {

template <class T, int Columns, int Rows>
struct matrix {
    using Column = vec<T, Rows>;
    Column columns[Columns];

    matrix() = default;
    // A diagonal matrix.
    MSL_INLINE explicit matrix(T diagonal) {
        for (int c = 0; c < Columns; ++c) {
            columns[c] = Column(T(0));
            if (c < Rows) columns[c][c] = diagonal;
        }
    }
    template <class U, class = enable_if_t<!is_same_v<U, T>>>
    MSL_INLINE explicit matrix(const matrix<U, Columns, Rows>& other) {
        for (int c = 0; c < Columns; ++c) columns[c] = Column(other.columns[c]);
    }
    template <class... C, class = enable_if_t<sizeof...(C) == Columns && (is_same_v<C, Column> && ...)>>
    MSL_INLINE matrix(const C&... column) : columns{column...} {}
    template <class... S, class = enable_if_t<sizeof...(S) == Columns * Rows && (is_arithmetic_v<S> && ...)>,
              class = void>
    MSL_INLINE matrix(S... elements) {
        T flat[] = {T(elements)...};
        for (int c = 0; c < Columns; ++c)
            for (int r = 0; r < Rows; ++r) columns[c][r] = flat[c * Rows + r];
    }
    MSL_INLINE Column& operator[](int c) { return columns[MSL_INDEX(c, Columns)]; }
    MSL_INLINE const Column& operator[](int c) const { return columns[MSL_INDEX(c, Columns)]; }
    MSL_INLINE matrix& operator+=(const matrix& other) { return *this = *this + other; }
    MSL_INLINE matrix& operator-=(const matrix& other) { return *this = *this - other; }
    MSL_INLINE matrix& operator*=(T factor) { return *this = *this * factor; }
};

template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator+(const matrix<T, C, R>& a, const matrix<T, C, R>& b) {
    matrix<T, C, R> sum;
    for (int c = 0; c < C; ++c) sum[c] = a[c] + b[c];
    return sum;
}
template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator-(const matrix<T, C, R>& a, const matrix<T, C, R>& b) {
    matrix<T, C, R> difference;
    for (int c = 0; c < C; ++c) difference[c] = a[c] - b[c];
    return difference;
}
template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator*(const matrix<T, C, R>& m, T factor) {
    matrix<T, C, R> scaled;
    for (int c = 0; c < C; ++c) scaled[c] = m[c] * factor;
    return scaled;
}
template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator*(T factor, const matrix<T, C, R>& m) {
    return m * factor;
}
template <class T, int C, int R>
MSL_INLINE vec<T, R> operator*(const matrix<T, C, R>& m, const vec<T, C>& v) {
    vec<T, R> sum = m[0] * v[0];
    for (int c = 1; c < C; ++c) sum += m[c] * v[c];
    return sum;
}
template <class T, int C, int R>
MSL_INLINE vec<T, C> operator*(const vec<T, R>& v, const matrix<T, C, R>& m) {
    vec<T, C> products;
    for (int c = 0; c < C; ++c) {
        products[c] = v[0] * m[c][0];
        for (int r = 1; r < R; ++r) products[c] += v[r] * m[c][r];
    }
    return products;
}
template <class T, int Inner, int R, int C>
MSL_INLINE matrix<T, C, R> operator*(const matrix<T, Inner, R>& a, const matrix<T, C, Inner>& b) {
    matrix<T, C, R> product;
    for (int c = 0; c < C; ++c) product[c] = a * b[c];
    return product;
}

template <class T, int C, int R>
MSL_INLINE matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
    matrix<T, R, C> result;
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < R; ++r) result[r][c] = m[c][r];
    return result;
}

template <class T>
MSL_INLINE T determinant(const matrix<T, 2, 2>& m) {
    return m[0][0] * m[1][1] - m[1][0] * m[0][1];
}
template <class T, int N>
MSL_INLINE T determinant(const matrix<T, N, N>& m) {
    T sum = T(0), sign = T(1);
    for (int skipped = 0; skipped < N; ++skipped, sign = -sign) {
        matrix<T, N - 1, N - 1> minor;
        for (int c = 0, target = 0; c < N; ++c) {
            if (c == skipped) continue;
            for (int r = 1; r < N; ++r) minor[target][r - 1] = m[c][r];
            ++target;
        }
        sum += sign * m[skipped][0] * determinant(minor);
    }
    return sum;
}

}  // namespace metal

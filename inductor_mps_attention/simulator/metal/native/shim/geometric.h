// <metal_geometric>: products and lengths of vectors.
#pragma once
#include "math.h"

namespace metal {

template <class T>
MSL_INLINE T dot(const vec<T, 2>& a, const vec<T, 2>& b) {
    return a.x * b.x + a.y * b.y;
}
template <class T>
MSL_INLINE T dot(const vec<T, 3>& a, const vec<T, 3>& b) {
    return a.x * b.x + a.y * b.y + a.z * b.z;
}
template <class T>
MSL_INLINE T dot(const vec<T, 4>& a, const vec<T, 4>& b) {
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
template <class T>
MSL_INLINE vec<T, 3> cross(const vec<T, 3>& a, const vec<T, 3>& b) {
    return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
template <class T, int N, class = msl_detail::if_math_float<T>>
MSL_INLINE T length_squared(const vec<T, N>& v) {
    return dot(v, v);
}
template <class T, int N, class = msl_detail::if_math_float<T>>
MSL_INLINE T length(const vec<T, N>& v) {
    return T(sqrt(dot(v, v)));
}
template <class T, int N, class = msl_detail::if_math_float<T>>
MSL_INLINE T distance(const vec<T, N>& a, const vec<T, N>& b) {
    return length(a - b);
}
template <class T, int N, class = msl_detail::if_math_float<T>>
MSL_INLINE T distance_squared(const vec<T, N>& a, const vec<T, N>& b) {
    return length_squared(a - b);
}
template <class T, int N, class = msl_detail::if_math_float<T>>
MSL_INLINE vec<T, N> normalize(const vec<T, N>& v) {
    return v * rsqrt(dot(v, v));
}
template <class T, int N, class = msl_detail::if_math_float<T>>
MSL_INLINE vec<T, N> faceforward(const vec<T, N>& normal, const vec<T, N>& incident, const vec<T, N>& reference) {
    return dot(incident, reference) < T(0) ? normal : -normal;
}
template <class T, int N, class = msl_detail::if_math_float<T>>
MSL_INLINE vec<T, N> reflect(const vec<T, N>& incident, const vec<T, N>& normal) {
    return incident - T(2) * dot(normal, incident) * normal;
}
template <class T, int N, class = msl_detail::if_math_float<T>>
MSL_INLINE vec<T, N> refract(const vec<T, N>& incident, const vec<T, N>& normal, T ratio) {
    T cosine = dot(normal, incident);
    T rest = T(1) - ratio * ratio * (T(1) - cosine * cosine);
    return rest < T(0) ? vec<T, N>(T(0)) : ratio * incident - (ratio * cosine + sqrt(rest)) * normal;
}

namespace fast {
using metal::distance;
using metal::length;
using metal::normalize;
}  // namespace fast
namespace precise {
using metal::distance;
using metal::length;
using metal::normalize;
}  // namespace precise

}  // namespace metal

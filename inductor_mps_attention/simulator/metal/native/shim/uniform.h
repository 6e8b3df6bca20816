// <metal_uniform>: a value that is the same in all threads. It is just a value here.
#pragma once
#include "scalars.h"

namespace metal {

template <class T>
using uniform = T;

template <class T>
MSL_INLINE constexpr T make_uniform(T value) {
    return value;
}

}  // namespace metal

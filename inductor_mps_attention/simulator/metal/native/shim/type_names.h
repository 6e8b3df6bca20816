// float2 ... ulong4, packed_float3, half4x4: both global and in namespace metal, as Metal has them.
#pragma once
#include "matrix.h"
#include "packed.h"

#define MSL_VECTOR_NAMES(T)                        \
    typedef metal::vec<T, 2> T##2;                 \
    typedef metal::vec<T, 3> T##3;                 \
    typedef metal::vec<T, 4> T##4;                 \
    typedef metal::packed_vec<T, 2> packed_##T##2; \
    typedef metal::packed_vec<T, 3> packed_##T##3; \
    typedef metal::packed_vec<T, 4> packed_##T##4; \
    namespace metal {                              \
    using MSL_ROOT::T##2;                                  \
    using MSL_ROOT::T##3;                                  \
    using MSL_ROOT::T##4;                                  \
    using MSL_ROOT::packed_##T##2;                         \
    using MSL_ROOT::packed_##T##3;                         \
    using MSL_ROOT::packed_##T##4;                         \
    }
MSL_VECTOR_NAMES(float)
MSL_VECTOR_NAMES(half)
MSL_VECTOR_NAMES(bfloat)
MSL_VECTOR_NAMES(char)
MSL_VECTOR_NAMES(uchar)
MSL_VECTOR_NAMES(short)
MSL_VECTOR_NAMES(ushort)
MSL_VECTOR_NAMES(int)
MSL_VECTOR_NAMES(uint)
MSL_VECTOR_NAMES(long)
MSL_VECTOR_NAMES(ulong)
MSL_VECTOR_NAMES(bool)
#undef MSL_VECTOR_NAMES

#define MSL_MATRIX_NAME(T, C, R)               \
    typedef metal::matrix<T, C, R> T##C##x##R; \
    namespace metal {                          \
    using MSL_ROOT::T##C##x##R;                        \
    }
#define MSL_MATRIX_NAMES(T)                                                                             \
    MSL_MATRIX_NAME(T, 2, 2)                                                                            \
    MSL_MATRIX_NAME(T, 2, 3) MSL_MATRIX_NAME(T, 2, 4) MSL_MATRIX_NAME(T, 3, 2) MSL_MATRIX_NAME(T, 3, 3) \
        MSL_MATRIX_NAME(T, 3, 4) MSL_MATRIX_NAME(T, 4, 2) MSL_MATRIX_NAME(T, 4, 3) MSL_MATRIX_NAME(T, 4, 4)
MSL_MATRIX_NAMES(float)
MSL_MATRIX_NAMES(half)
MSL_MATRIX_NAMES(bfloat)
#undef MSL_MATRIX_NAMES
#undef MSL_MATRIX_NAME

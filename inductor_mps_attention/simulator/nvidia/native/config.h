// Attributes, types and the thread of this engine: what abi.h and the runtime are for the CPU engine.
#pragma once

// The namespace that holds all of the shim.
#define MSL_ROOT ::metal_text

#define MSL_INLINE __device__ __forceinline__
#define MSL_LAMBDA
#define MSL_CHECK 0
#define MSL_INDEX(index, count) (index)
#define MSL_LANES 32

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;

#include "half.h"
#include "thread.h"
#include "atomics.h"

#define MSL_BFLOAT_BITS(value) \
    (__builtin_is_constant_evaluated() ? msl_rounded_to_bfloat(value) : msl_hardware_bfloat(value))
#define MSL_FENCE() __threadfence()

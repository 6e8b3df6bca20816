// Attributes used all over the shim.
#pragma once
#include "../abi.h"

#if defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#error "Metal's half needs _Float16, which C++ has on aarch64 from g++ 13 on, or in clang"
#endif

#if defined(__x86_64__) && defined(__clang__) && __clang_major__ < 15
#error "Metal's half needs _Float16, which clang has on x86-64 from version 15 on: install that, or g++ 12"
#endif

// The namespace that holds all of the shim: here the global one.
#define MSL_ROOT

typedef _Float16 half;

// Library functions are part of their caller, as on a GPU: an access inside one is attributed to the user's line.
#define MSL_INLINE inline __attribute__((always_inline))

// Threads of a threadgroup share one core here, and atomics are real: nothing is left to order.
#define MSL_FENCE() ((void)0)

#define MSL_LAMBDA __attribute__((always_inline))

// The body of a lane operation: it reads and writes the operands of other lanes, which is no access of the kernel.
#define MSL_OPERATION __attribute__((noinline, no_sanitize("thread")))

#if defined(__SANITIZE_THREAD__)
#define MSL_CHECK 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MSL_CHECK 1
#endif
#endif
#ifndef MSL_CHECK
#define MSL_CHECK 0
#endif

// An index of something with `count` elements, reported where it is none of theirs.
#if MSL_CHECK
template <class Index>
MSL_INLINE constexpr Index msl_checked_index(Index index, int count) {
    if (__builtin_expect(index < 0 || static_cast<unsigned long long>(index) >= static_cast<unsigned>(count), 0))
        msl_index_outside(index, count);
    return index;
}
#define MSL_INDEX(index, count) msl_checked_index(index, count)
#else
#define MSL_INDEX(index, count) (index)
#endif

// <metal_atomic>: atomics of int, uint, float, bool and ulong. Order is relaxed. As in Metal, float has add, sub,
// exchange, load, store and compare-exchange, and ulong only min and max without a result.
#pragma once
#include "synchronization.h"

namespace metal {

template <class T>
struct atomic {
    static_assert(is_any_of<T, int, uint, float, bool, ulong>, "atomic<T>: T is int, uint, float, bool or ulong");
    conditional_t<is_same_v<T, bool>, uint, T> stored;  // an atomic_bool has four bytes
};

typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<ulong> atomic_ulong;

namespace msl_detail {

template <class T>
using if_word = enable_if_t<sizeof(T) <= 4>;
template <class T>
using if_word_integer = enable_if_t<is_any_of<T, int, uint>>;

template <class T>
MSL_INLINE uint word_of(T value) {
    if constexpr (is_same_v<T, bool>)
        return value;
    else
        return as_type<uint>(value);
}
template <class T>
MSL_INLINE T from_word(uint word) {
    if constexpr (is_same_v<T, bool>)
        return word != 0;
    else
        return as_type<T>(word);
}
template <class T>
MSL_INLINE T update(const volatile atomic<T>* object, int operation, T value) {
    void* address = const_cast<void*>(static_cast<const volatile void*>(object));
    return from_word<T>(msl_atomic_rmw32(address, operation, word_of(value)));
}

}  // namespace msl_detail

#define MSL_ATOMIC_FUNCTION(name, constraint, operation)                        \
    template <class T, class U, class = msl_detail::constraint<T>>              \
    MSL_INLINE T name(volatile atomic<T>* object, U value, memory_order) {      \
        return msl_detail::update<T>(object, operation, static_cast<T>(value)); \
    }
MSL_ATOMIC_FUNCTION(atomic_fetch_add_explicit, if_word, (is_same_v<T, float> ? MSL_ATOMIC_ADD_FLOAT : MSL_ATOMIC_ADD))
MSL_ATOMIC_FUNCTION(atomic_fetch_sub_explicit, if_word, (is_same_v<T, float> ? MSL_ATOMIC_SUB_FLOAT : MSL_ATOMIC_SUB))
MSL_ATOMIC_FUNCTION(atomic_fetch_and_explicit, if_word_integer, MSL_ATOMIC_AND)
MSL_ATOMIC_FUNCTION(atomic_fetch_or_explicit, if_word_integer, MSL_ATOMIC_OR)
MSL_ATOMIC_FUNCTION(atomic_fetch_xor_explicit, if_word_integer, MSL_ATOMIC_XOR)
MSL_ATOMIC_FUNCTION(atomic_fetch_min_explicit, if_word_integer,
                    (is_signed_v<T> ? MSL_ATOMIC_MIN_SIGNED : MSL_ATOMIC_MIN_UNSIGNED))
MSL_ATOMIC_FUNCTION(atomic_fetch_max_explicit, if_word_integer,
                    (is_signed_v<T> ? MSL_ATOMIC_MAX_SIGNED : MSL_ATOMIC_MAX_UNSIGNED))
MSL_ATOMIC_FUNCTION(atomic_exchange_explicit, if_word, MSL_ATOMIC_EXCHANGE)
#undef MSL_ATOMIC_FUNCTION

template <class T, class = msl_detail::if_word<T>>
MSL_INLINE T atomic_load_explicit(const volatile atomic<T>* object, memory_order) {
    return msl_detail::update<T>(object, MSL_ATOMIC_LOAD, T(0));
}
template <class T, class U, class = msl_detail::if_word<T>>
MSL_INLINE void atomic_store_explicit(volatile atomic<T>* object, U value, memory_order) {
    msl_detail::update<T>(object, MSL_ATOMIC_STORE, static_cast<T>(value));
}
template <class T, class U, class = msl_detail::if_word<T>>
MSL_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object, T* expected, U desired, memory_order,
                                                      memory_order) {
    uint seen = msl_detail::word_of(*expected);
    void* address = const_cast<void*>(static_cast<volatile void*>(object));
    bool done = msl_atomic_cas32(address, &seen, msl_detail::word_of(static_cast<T>(desired)));
    *expected = msl_detail::from_word<T>(seen);
    return done;
}

MSL_INLINE void atomic_min_explicit(volatile atomic<ulong>* object, ulong value, memory_order) {
    msl_atomic_rmw64(const_cast<ulong*>(&object->stored), MSL_ATOMIC_MIN_UNSIGNED, value);
}
MSL_INLINE void atomic_max_explicit(volatile atomic<ulong>* object, ulong value, memory_order) {
    msl_atomic_rmw64(const_cast<ulong*>(&object->stored), MSL_ATOMIC_MAX_UNSIGNED, value);
}

}  // namespace metal

using metal::atomic_bool;
using metal::atomic_float;
using metal::atomic_int;
using metal::atomic_uint;
using metal::atomic_ulong;

// How an entry point calls its kernel: each parameter is bound by its type and a (kind, index) pair, and threadgroup
// arrays are found by their place in the text.
#pragma once
#include "attributes.h"

namespace msl_ {

template <class P, int kind, int index>
struct Argument {
    static MSL_INLINE P get(const MslArgs*, const MslThread* thread) {
        return attribute<metal::remove_cv_t<P>, kind>(thread);
    }
};
template <class T, int index>
struct Argument<T*, A_BUF, index> {
    static MSL_INLINE T* get(const MslArgs* args, const MslThread*) { return static_cast<T*>(args->buf[index]); }
};
template <class T, int index>
struct Argument<T&, A_BUF, index> {
    static MSL_INLINE T& get(const MslArgs* args, const MslThread*) { return *static_cast<T*>(args->buf[index]); }
};
template <class T, int index>
struct Argument<T*, A_TG, index> {
    static MSL_INLINE T* get(const MslArgs* args, const MslThread*) { return static_cast<T*>(args->tg[index]); }
};
template <class T, int index>
struct Argument<T&, A_TG, index> {
    static MSL_INLINE T& get(const MslArgs* args, const MslThread*) { return *static_cast<T*>(args->tg[index]); }
};

// kis<ki<kind, index>...>::call(&kernel, args, thread) calls the kernel with its parameters bound in order.
template <class... Bindings>
struct kis;
template <int... kind, int... index>
struct kis<ki<kind, index>...> {
    template <class... P>
    static MSL_INLINE void call(void (*kernel)(P...), const MslArgs* args, const MslThread* thread) {
        (void)args;
        (void)thread;
        kernel(Argument<P, kind, index>::get(args, thread)...);
    }
};

// Bytes of the smallest unit of a type that threads may own separately.
template <class T>
struct unit_size {
    static constexpr size_t value =
        metal::is_arithmetic_v<metal::msl_detail::element_t<T>> ? sizeof(metal::msl_detail::element_t<T>) : 1;
};
template <class T, size_t N>
struct unit_size<T[N]> : unit_size<T> {};

// The threadgroup array of type T declared at the place that ID stands for; all threads of a threadgroup share it.
template <class T, int ID>
MSL_INLINE T& tg(const char* name, int line) {
    static char key;
    return *static_cast<T*>(msl_tg_alloc(&key, sizeof(T), name, line, unit_size<T>::value));
}

}  // namespace msl_

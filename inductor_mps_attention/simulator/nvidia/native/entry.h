// How an entry point calls its kernel. One struct is the argument of every entry: addresses, sizes, and the bytes of
// numbers and lists, which the hardware reads as constants. A kernel is compiled for the kinds of its arguments: bit n
// of `inlined` is set where buffer n is a number or a list in `constants`, and not memory.
#pragma once
#include "attributes.h"

namespace msl_ {

constexpr uint CONSTANT_BYTES = 512, MAX_DYNAMIC_ARRAYS = 8;

constexpr int number_of_ones(uint bits) { return bits ? int(bits & 1u) + number_of_ones(bits >> 1) : 0; }

template <int buffers, uint inlined>
struct Arguments {
    static constexpr uint INLINED = inlined;
    uint groups[3], group_size[3], threads[3];
    uint dynamic[MAX_DYNAMIC_ARRAYS];  // offsets of [[threadgroup(n)]] arrays
    void* address[buffers];
    alignas(16) char constants[inlined ? number_of_ones(inlined) : 1][CONSTANT_BYTES];
};

extern __shared__ char dynamic_memory[] __attribute__((aligned(16)));

template <class P, int kind, int index>
struct Argument {
    template <class A>
    static MSL_INLINE P get(const A&, const MslThread& thread) {
        return attribute<metal::remove_cv_t<P>, kind>(&thread);
    }
};
template <class T, int index>
struct Argument<T*, A_BUF, index> {
    template <class A>
    static MSL_INLINE T* get(const A& arguments, const MslThread&) {
        if constexpr (A::INLINED >> index & 1u)
            return (T*)arguments.constants[number_of_ones(A::INLINED & ((1u << index) - 1u))];
        else
            return static_cast<T*>(arguments.address[index]);
    }
};
template <class T, int index>
struct Argument<T*, A_TG, index> {
    template <class A>
    static MSL_INLINE T* get(const A& arguments, const MslThread&) {
        return reinterpret_cast<T*>(dynamic_memory + arguments.dynamic[index]);
    }
};
template <class T, int kind, int index>
struct Argument<T&, kind, index> {
    template <class A>
    static MSL_INLINE T& get(const A& arguments, const MslThread& thread) {
        return *Argument<T*, kind, index>::get(arguments, thread);
    }
};

// Of designated elements, [first ... last] = value.
template <class T, unsigned long N, class V>
MSL_INLINE void fill_elements(T (&array)[N], long first, long last, const V& value) {
    for (long at = first; at <= last; ++at) array[at] = value;
}

MSL_INLINE uint smaller_of(uint a, uint b) { return a < b ? a : b; }

template <class A>
MSL_INLINE MslThread own_thread(const A& arguments) {
    MslThread own;
    own.lane = apple_lane(own_hardware_lane());
    own.sg = threadIdx.x >> 5;
    own.index_tg = threadIdx.x & ~31u | own.lane;
    uint group = blockIdx.x, thread = own.index_tg;
    for (int axis = 0; axis < 3; ++axis) {
        uint groups = arguments.groups[axis], size = arguments.group_size[axis];
        own.tpg[axis] = groups;
        own.grid[axis] = arguments.threads[axis];
        own.tpt_dispatch[axis] = size;
        own.tg_grid[axis] = axis < 2 ? group % groups : group;
        own.tid_tg[axis] = axis < 2 ? thread % size : thread;
        group /= groups;
        thread /= size;
        own.tid_grid[axis] = own.tg_grid[axis] * size + own.tid_tg[axis];
        own.tpt[axis] = smaller_of(size, own.grid[axis] - own.tg_grid[axis] * size);
    }
    own.nsg = (own.tpt_dispatch[0] * own.tpt_dispatch[1] * own.tpt_dispatch[2] + 31u) / 32u;
    return own;
}

// Threads that Metal does not start: those that fill up the last simdgroup, and those past the end of the grid.
MSL_INLINE bool is_surplus(const MslThread& own) {
    bool surplus = own.tid_tg[2] >= own.tpt_dispatch[2];
    for (int axis = 0; axis < 3; ++axis) surplus |= own.tid_grid[axis] >= own.grid[axis];
    return surplus;
}

template <class... Bindings>
struct kis {};

template <auto kernel, class A, class... P, int... kind, int... index>
MSL_INLINE void call(void (*)(P...), kis<ki<kind, index>...>, const A& arguments) {
    msl_poison();
    MslThread own = own_thread(arguments);
    if (is_surplus(own)) return;
    kernel(Argument<P, kind, index>::get(arguments, own)...);
}

}  // namespace msl_

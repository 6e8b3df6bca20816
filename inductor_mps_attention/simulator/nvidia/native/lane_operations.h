// What simdgroup and quadgroup functions have in common: shuffles between the lanes of a warp. All lanes of a simdgroup
// take part; Metal allows a part of them to, which this engine does not model.
#pragma once
#include "lane_values.h"

namespace metal {
namespace msl_detail {

constexpr uint ALL_LANES = 0xffffffffu;

// A scalar as a word, and back.
template <class T>
MSL_INLINE uint lane_word(T value) {
    if constexpr (sizeof(T) == 4)
        return as_type<uint>(value);
    else if constexpr (sizeof(T) == 2)
        return as_type<ushort>(value);
    else
        return as_type<uchar>(value);
}
template <class T>
MSL_INLINE T from_lane_word(uint word) {
    if constexpr (sizeof(T) == 4)
        return as_type<T>(word);
    else if constexpr (sizeof(T) == 2)
        return as_type<T>(ushort(word));
    else
        return as_type<T>(uchar(word));
}

// The value of the lane that the hardware numbers `source`, and of the one that differs from the own by `mask`.
template <class T>
MSL_INLINE T from_lane(T value, uint source) {
    if constexpr (is_vector_v<T>) {
        for (int i = 0; i < int(sizeof(T) / sizeof(value.x)); ++i) value[i] = from_lane(value[i], source);
        return value;
    } else {
        return from_lane_word<T>(__shfl_sync(ALL_LANES, lane_word(value), source));
    }
}
template <class T>
MSL_INLINE T from_lane_xor(T value, uint mask) {
    if constexpr (is_vector_v<T>) {
        for (int i = 0; i < int(sizeof(T) / sizeof(value.x)); ++i) value[i] = from_lane_xor(value[i], mask);
        return value;
    } else {
        return from_lane_word<T>(__shfl_xor_sync(ALL_LANES, lane_word(value), mask));
    }
}

// Over `lanes` neighbouring lanes, by halves: first those that are furthest apart.
template <class T, class Op, uint lanes>
MSL_INLINE T reduce_lanes(T value) {
    for (uint step = lanes / 2; step > 0; step /= 2)
        value = Op::template combine<T>(value, from_lane_xor(value, hardware_lane(step)));
    return value;
}
template <class T, class Op>
MSL_INLINE T reduce(T value) {
    return reduce_lanes<T, Op, 32>(value);
}
template <class T, class Op>
MSL_INLINE T reduce_quads(T value) {
    return reduce_lanes<T, Op, 4>(value);
}

template <class T, class Op, bool inclusive, uint lanes>
MSL_INLINE T prefix_lanes(T value) {
    uint own = msl_thread->lane;
    for (uint step = 1; step < lanes; step *= 2) {
        T before = from_lane(value, hardware_lane((own - step) & 31u));
        if (own % lanes >= step) value = Op::template combine<T>(before, value);
    }
    if constexpr (inclusive) return value;
    T before = from_lane(value, hardware_lane((own - 1) & 31u));
    return own % lanes ? before : T(Op::identity);
}
template <class T, class Op, bool inclusive>
MSL_INLINE T prefix(T value) {
    return prefix_lanes<T, Op, inclusive, 32>(value);
}
template <class T, class Op, bool inclusive>
MSL_INLINE T prefix_quads(T value) {
    return prefix_lanes<T, Op, inclusive, 4>(value);
}

template <class T>
MSL_INLINE T broadcast_first(T value) {
    return from_lane(value, 0);
}
template <class T>
MSL_INLINE T broadcast_first_quads(T value) {
    return from_lane(value, hardware_lane(msl_thread->lane & ~3u));
}

struct Source_simd_shuffle_xor;
struct FillDown;
struct FillUp;

// Where a shuffle reads from: Source::lane(own lane, argument), or FILL + lane for that lane's filling data. A lane that
// does not exist gives an undefined value.
template <class T, class Source>
MSL_INLINE T shuffle(T value, T filling, int argument) {
    if constexpr (is_same_v<Source, Source_simd_shuffle_xor>) {
        return from_lane_xor(value, hardware_lane(uint(argument) & 31u));
    } else {
        int source = Source::lane(int(msl_thread->lane), argument);
        T moved = from_lane(value, hardware_lane(uint(source) & 31u));
        if constexpr (is_any_of<Source, FillDown, FillUp>) {  // FILL is a multiple of 32
            T filled = from_lane(filling, hardware_lane(uint(source) & 31u));
            return source >= Source::FILL ? filled : moved;
        }
        return moved;
    }
}

template <class T>
MSL_INLINE T run_on_values(T (*operation)(T), T value, int) {
    return operation(value);
}
template <class T>
MSL_INLINE T run_shuffle(T (*operation)(T, T, int), T value, T filling, int argument, int) {
    return operation(value, filling, argument);
}

// Bit i of the hardware's vote as bit apple_lane(i): exchanges of index bits, each a swap of two masks.
MSL_INLINE constexpr uint swap_bits(uint votes, uint mask, uint distance) {
    uint different = (votes ^ votes >> distance) & mask;
    return votes ^ different ^ different << distance;
}
MSL_INLINE constexpr uint in_apple_order(uint votes) {
    votes = swap_bits(votes, 0x0c0c0c0cu, 2);  // index bits 1 and 2
    return swap_bits(votes, 0x00f000f0u, 4);   // index bits 2 and 3
}

// Votes: low word the lanes that say yes, high word the lanes that vote.
MSL_INLINE uint64_t run_vote(bool yes, int) {
    return uint64_t(in_apple_order(__activemask())) << 32 | in_apple_order(__ballot_sync(__activemask(), yes));
}

}  // namespace msl_detail

#define MSL_REDUCTION(name, body, Op, constraint)               \
    template <class T, class = msl_detail::constraint<T>>       \
    MSL_INLINE T name(T value, int = 0) {                       \
        return msl_detail::body<T, msl_detail::Op>(value);      \
    }

#define MSL_PREFIX(name, body, Op, inclusive)                         \
    template <class T, class = msl_detail::if_lane_value<T>>          \
    MSL_INLINE T name(T value, int = 0) {                             \
        return msl_detail::body<T, msl_detail::Op, inclusive>(value); \
    }

#define MSL_SHUFFLE(name, source)                                                             \
    namespace msl_detail {                                                                    \
    struct Source_##name {                                                                    \
        static constexpr int FILL = 1 << 20;                                                  \
        static MSL_INLINE int lane(int own, int argument) { return source; }                  \
    };                                                                                        \
    }                                                                                         \
    template <class T, class = msl_detail::if_lane_value<T>>                                  \
    MSL_INLINE T name(T value, ushort argument, int = 0) {                                    \
        return msl_detail::shuffle<T, msl_detail::Source_##name>(value, value, int(argument)); \
    }

}  // namespace metal

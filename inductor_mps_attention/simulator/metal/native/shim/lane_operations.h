// What simdgroup and quadgroup functions have in common. Each lane leaves its operands on its own stack; the last lane
// to come runs the operation for all.
#pragma once
#include "lane_values.h"

namespace metal {
namespace msl_detail {

template <class T>
struct LaneValue {
    T value;
    T result;
};

template <class T>
struct LaneShuffle {
    T value;
    T result;
    T filling;
    int argument;
};

template <class T>
MSL_INLINE LaneValue<T>& value_of(void* const* operands, int lane) {
    return *static_cast<LaneValue<T>*>(operands[lane]);
}
template <class T>
MSL_INLINE LaneShuffle<T>& shuffle_of(void* const* operands, int lane) {
    return *static_cast<LaneShuffle<T>*>(operands[lane]);
}

// Combines the active lanes among `lanes` as a tree: the first half with the second, and so on.
template <class T, class Op>
MSL_OPERATION void reduce(void* const* operands, uint32_t lanes) {
    T values[MSL_LANES];
    int count = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1)
        values[count++] = value_of<T>(operands, __builtin_ctz(rest)).value;
    while (count > 1) {
        int half_count = (count + 1) / 2;
        for (int i = 0; i + half_count < count; ++i)
            values[i] = Op::template combine<T>(values[i], values[i + half_count]);
        count = half_count;
    }
    for (uint32_t rest = lanes; rest; rest &= rest - 1) value_of<T>(operands, __builtin_ctz(rest)).result = values[0];
}

// The same within each four lanes.
template <class T, class Op>
MSL_OPERATION void reduce_quads(void* const* operands, uint32_t lanes) {
    for (int first = 0; first < MSL_LANES; first += 4)
        if (uint32_t quad = lanes & 0xfu << first) reduce<T, Op>(operands, quad);
}

template <class T, class Op, bool inclusive>
MSL_OPERATION void prefix(void* const* operands, uint32_t lanes) {
    T total = T(Op::identity);
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        LaneValue<T>& lane = value_of<T>(operands, __builtin_ctz(rest));
        T next = Op::template combine<T>(total, lane.value);
        lane.result = inclusive ? next : total;
        total = next;
    }
}

template <class T, class Op, bool inclusive>
MSL_OPERATION void prefix_quads(void* const* operands, uint32_t lanes) {
    for (int first = 0; first < MSL_LANES; first += 4)
        if (uint32_t quad = lanes & 0xfu << first) prefix<T, Op, inclusive>(operands, quad);
}

template <class T>
MSL_OPERATION void broadcast_first(void* const* operands, uint32_t lanes) {
    T first = value_of<T>(operands, __builtin_ctz(lanes)).value;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) value_of<T>(operands, __builtin_ctz(rest)).result = first;
}

template <class T>
MSL_OPERATION void broadcast_first_quads(void* const* operands, uint32_t lanes) {
    for (int first = 0; first < MSL_LANES; first += 4)
        if (uint32_t quad = lanes & 0xfu << first) broadcast_first<T>(operands, quad);
}

// Where a shuffle reads from: Source::lane(own lane, argument), or FILL + lane for that lane's filling data. A lane that does not exist or takes no part gives an
// undefined value in Metal; the launch says which.
template <class T, class Source>
MSL_OPERATION void shuffle(void* const* operands, uint32_t lanes) {
    msl_count_shuffle();
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        LaneShuffle<T>& own = shuffle_of<T>(operands, lane);
        int source = Source::lane(lane, own.argument);
        if (source >= Source::FILL && (lanes >> (source - Source::FILL) & 1))
            own.result = shuffle_of<T>(operands, source - Source::FILL).filling;
        else if (source >= 0 && source < MSL_LANES && (lanes >> source & 1))
            own.result = shuffle_of<T>(operands, source).value;
        else
            __builtin_memset(static_cast<void*>(&own.result), static_cast<int>(msl_inactive_fill(source)), sizeof(T));
    }
}

template <class T>
MSL_INLINE T run_on_values(MslOpFn operation, T value, int line) {
    LaneValue<T> lane{value, value};
    msl_collective(operation, &lane, line);
    return lane.result;
}

template <class T>
MSL_INLINE T run_shuffle(MslOpFn operation, T value, T filling, int argument, int line) {
    LaneShuffle<T> lane{value, value, filling, argument};
    msl_collective(operation, &lane, line);
    return lane.result;
}

// Votes: low word the lanes that say yes, high word the lanes that vote.
inline MSL_OPERATION void vote(void* const* operands, uint32_t lanes) {
    uint64_t votes = static_cast<uint64_t>(lanes) << 32;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        if (value_of<uint64_t>(operands, lane).value) votes |= uint64_t(1) << lane;
    }
    for (uint32_t rest = lanes; rest; rest &= rest - 1)
        value_of<uint64_t>(operands, __builtin_ctz(rest)).result = votes;
}

MSL_INLINE uint64_t run_vote(bool yes, int line) { return run_on_values<uint64_t>(&vote, yes, line); }

}  // namespace msl_detail

#define MSL_REDUCTION(name, body, Op, constraint)                                               \
    template <class T, class = msl_detail::constraint<T>>                                       \
    MSL_INLINE T name(T value, int line = __builtin_LINE()) {                                   \
        return msl_detail::run_on_values<T>(&msl_detail::body<T, msl_detail::Op>, value, line); \
    }

#define MSL_PREFIX(name, body, Op, inclusive)                                                              \
    template <class T, class = msl_detail::if_lane_value<T>>                                               \
    MSL_INLINE T name(T value, int line = __builtin_LINE()) {                                              \
        return msl_detail::run_on_values<T>(&msl_detail::body<T, msl_detail::Op, inclusive>, value, line); \
    }

#define MSL_SHUFFLE(name, source)                                                                                     \
    namespace msl_detail {                                                                                            \
    struct Source_##name {                                                                                            \
        static constexpr int FILL = 1 << 20;                                                                          \
        static MSL_INLINE int lane(int own, int argument) {                                                           \
            (void)own;                                                                                                \
            return source;                                                                                            \
        }                                                                                                             \
    };                                                                                                                \
    }                                                                                                                 \
    template <class T, class = msl_detail::if_lane_value<T>>                                                          \
    MSL_INLINE T name(T value, ushort argument, int line = __builtin_LINE()) {                                        \
        return msl_detail::run_shuffle<T>(&msl_detail::shuffle<T, msl_detail::Source_##name>, value, value, argument, \
                                          line);                                                                      \
    }

}  // namespace metal

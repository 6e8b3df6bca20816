// <metal_simdgroup>: operations among the 32 lanes of a simdgroup.
#pragma once
#include "lane_operations.h"

namespace metal {

MSL_REDUCTION(simd_sum, reduce, Sum, if_lane_value)
MSL_REDUCTION(simd_product, reduce, Product, if_lane_value)
MSL_REDUCTION(simd_max, reduce, Maximum, if_lane_value)
MSL_REDUCTION(simd_min, reduce, Minimum, if_lane_value)
MSL_REDUCTION(simd_and, reduce, And, if_lane_integer)
MSL_REDUCTION(simd_or, reduce, Or, if_lane_integer)
MSL_REDUCTION(simd_xor, reduce, Xor, if_lane_integer)

MSL_PREFIX(simd_prefix_inclusive_sum, prefix, Sum, true)
MSL_PREFIX(simd_prefix_exclusive_sum, prefix, Sum, false)
MSL_PREFIX(simd_prefix_inclusive_product, prefix, Product, true)
MSL_PREFIX(simd_prefix_exclusive_product, prefix, Product, false)

MSL_SHUFFLE(simd_shuffle, argument)
MSL_SHUFFLE(simd_broadcast, argument)
MSL_SHUFFLE(simd_shuffle_xor, own ^ argument)
MSL_SHUFFLE(simd_shuffle_down, own + argument)
MSL_SHUFFLE(simd_shuffle_up, own - argument)
MSL_SHUFFLE(simd_shuffle_rotate_down, (own + argument) & 31)
MSL_SHUFFLE(simd_shuffle_rotate_up, (own - argument) & 31)

template <class T, class = msl_detail::if_lane_value<T>>
MSL_INLINE T simd_broadcast_first(T value, int line = __builtin_LINE()) {
    return msl_detail::run_on_values<T>(&msl_detail::broadcast_first<T>, value, line);
}

namespace msl_detail {
// `width` lanes form a group, a power of two. Lanes that would read beyond their group's edge read the filling data
// of the lanes at its other edge.
MSL_INLINE constexpr int fill_argument(int delta, int width) { return width << 16 | delta; }
struct FillDown {
    static constexpr int FILL = 1 << 20;
    static MSL_INLINE int lane(int own, int argument) {
        int delta = argument & 0xffff, width = argument >> 16, group = own & -width;
        int read = own - group + delta;
        return read < width ? group + read : FILL + group + (read & (width - 1));
    }
};
struct FillUp {
    static constexpr int FILL = 1 << 20;
    static MSL_INLINE int lane(int own, int argument) {
        int delta = argument & 0xffff, width = argument >> 16, group = own & -width;
        int read = own - group - delta;
        return read >= 0 ? group + read : FILL + group + (read & (width - 1));
    }
};
}  // namespace msl_detail

template <class T, class = msl_detail::if_lane_value<T>>
MSL_INLINE T simd_shuffle_and_fill_down(T value, T filling, ushort delta, ushort width = MSL_LANES,
                                        int line = __builtin_LINE()) {
    return msl_detail::run_shuffle<T>(&msl_detail::shuffle<T, msl_detail::FillDown>, value, filling,
                                      msl_detail::fill_argument(delta, width), line);
}
template <class T, class = msl_detail::if_lane_value<T>>
MSL_INLINE T simd_shuffle_and_fill_up(T value, T filling, ushort delta, ushort width = MSL_LANES,
                                      int line = __builtin_LINE()) {
    return msl_detail::run_shuffle<T>(&msl_detail::shuffle<T, msl_detail::FillUp>, value, filling,
                                      msl_detail::fill_argument(delta, width), line);
}

class simd_vote {
  public:
    typedef ulong vote_t;
    explicit simd_vote(vote_t votes = 0) : votes_(votes) {}
    bool all() const { return uint(votes_) == ~0u; }
    bool any() const { return votes_ != 0; }
    explicit operator vote_t() const { return votes_; }

  private:
    vote_t votes_;
};

MSL_INLINE simd_vote simd_ballot(bool yes, int line = __builtin_LINE()) {
    return simd_vote(uint(msl_detail::run_vote(yes, line)));
}
MSL_INLINE simd_vote simd_active_threads_mask(int line = __builtin_LINE()) {
    return simd_vote(msl_detail::run_vote(true, line) >> 32);
}
MSL_INLINE bool simd_any(bool yes, int line = __builtin_LINE()) { return uint(msl_detail::run_vote(yes, line)) != 0; }
MSL_INLINE bool simd_all(bool yes, int line = __builtin_LINE()) {
    uint64_t votes = msl_detail::run_vote(yes, line);
    return uint(votes) == uint(votes >> 32);
}
MSL_INLINE bool simd_is_first(int line = __builtin_LINE()) {
    return uint(__builtin_ctzll(msl_detail::run_vote(true, line) >> 32)) == msl_thread->lane;
}
MSL_INLINE bool simd_is_helper_thread() { return false; }

}  // namespace metal

// <metal_quadgroup>: operations among four neighbouring lanes.
#pragma once
#include "lane_operations.h"

namespace metal {

MSL_REDUCTION(quad_sum, reduce_quads, Sum, if_lane_value)
MSL_REDUCTION(quad_product, reduce_quads, Product, if_lane_value)
MSL_REDUCTION(quad_max, reduce_quads, Maximum, if_lane_value)
MSL_REDUCTION(quad_min, reduce_quads, Minimum, if_lane_value)
MSL_REDUCTION(quad_and, reduce_quads, And, if_lane_integer)
MSL_REDUCTION(quad_or, reduce_quads, Or, if_lane_integer)
MSL_REDUCTION(quad_xor, reduce_quads, Xor, if_lane_integer)

MSL_PREFIX(quad_prefix_inclusive_sum, prefix_quads, Sum, true)
MSL_PREFIX(quad_prefix_exclusive_sum, prefix_quads, Sum, false)
MSL_PREFIX(quad_prefix_inclusive_product, prefix_quads, Product, true)
MSL_PREFIX(quad_prefix_exclusive_product, prefix_quads, Product, false)

MSL_SHUFFLE(quad_shuffle, (own & ~3) + (argument & 3))
MSL_SHUFFLE(quad_broadcast, (own & ~3) + (argument & 3))
MSL_SHUFFLE(quad_shuffle_xor, own ^ (argument & 3))
MSL_SHUFFLE(quad_shuffle_down, (own & 3) + argument < 4 ? own + argument : -1)
MSL_SHUFFLE(quad_shuffle_up, (own & 3) >= argument ? own - argument : -1)
MSL_SHUFFLE(quad_shuffle_rotate_down, (own & ~3) + ((own + argument) & 3))
MSL_SHUFFLE(quad_shuffle_rotate_up, (own & ~3) + ((own - argument) & 3))

template <class T, class = msl_detail::if_lane_value<T>>
MSL_INLINE T quad_broadcast_first(T value, int line = __builtin_LINE()) {
    return msl_detail::run_on_values<T>(&msl_detail::broadcast_first_quads<T>, value, line);
}

// The votes of the own quad, in the low four bits.
class quad_vote {
  public:
    typedef uint vote_t;
    explicit quad_vote(vote_t votes = 0) : votes_(votes) {}
    bool all() const { return votes_ == 0xf; }
    bool any() const { return votes_ != 0; }
    explicit operator vote_t() const { return votes_; }

  private:
    vote_t votes_;
};

namespace msl_detail {
MSL_INLINE uint own_quad(uint lanes) { return lanes >> (msl_thread->lane & ~3u) & 0xf; }
}  // namespace msl_detail

MSL_INLINE quad_vote quad_ballot(bool yes, int line = __builtin_LINE()) {
    return quad_vote(msl_detail::own_quad(uint(msl_detail::run_vote(yes, line))));
}
MSL_INLINE quad_vote quad_active_threads_mask(int line = __builtin_LINE()) {
    return quad_vote(msl_detail::own_quad(uint(msl_detail::run_vote(true, line) >> 32)));
}
MSL_INLINE bool quad_any(bool yes, int line = __builtin_LINE()) {
    return msl_detail::own_quad(uint(msl_detail::run_vote(yes, line))) != 0;
}
MSL_INLINE bool quad_all(bool yes, int line = __builtin_LINE()) {
    uint64_t votes = msl_detail::run_vote(yes, line);
    return msl_detail::own_quad(uint(votes)) == msl_detail::own_quad(uint(votes >> 32));
}
MSL_INLINE bool quad_is_first(int line = __builtin_LINE()) {
    return uint(__builtin_ctz(msl_detail::own_quad(uint(msl_detail::run_vote(true, line) >> 32)))) ==
           (msl_thread->lane & 3u);
}

}  // namespace metal

#undef MSL_REDUCTION
#undef MSL_PREFIX
#undef MSL_SHUFFLE

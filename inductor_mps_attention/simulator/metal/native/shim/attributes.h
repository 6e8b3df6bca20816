// What a kernel parameter may be given, and the values of the thread attributes among these.
#pragma once
#include "type_names.h"

namespace msl_ {

// Kinds of kernel parameters, one for each attribute.
enum {
    A_BUF,     // [[buffer(n)]]
    A_TG,      // [[threadgroup(n)]]
    A_TPIG,    // [[thread_position_in_grid]]
    A_TPITG,   // [[thread_position_in_threadgroup]]
    A_TGPIG,   // [[threadgroup_position_in_grid]]
    A_TGPG,    // [[threadgroups_per_grid]]
    A_TPTG,    // [[threads_per_threadgroup]]: of this threadgroup
    A_TPG,     // [[threads_per_grid]]
    A_TIITG,   // [[thread_index_in_threadgroup]]
    A_LANE,    // [[thread_index_in_simdgroup]]
    A_SG,      // [[simdgroup_index_in_threadgroup]]
    A_NSG,     // [[simdgroups_per_threadgroup]], [[dispatch_simdgroups_per_threadgroup]]
    A_SIMDSZ,  // [[threads_per_simdgroup]], [[thread_execution_width]]
    A_DTPTG,   // [[dispatch_threads_per_threadgroup]]
    A_QUAD,    // [[quadgroup_index_in_threadgroup]]
    A_QLANE,   // [[thread_index_in_quadgroup]]
    A_NQUAD,   // [[quadgroups_per_threadgroup]], [[dispatch_quadgroups_per_threadgroup]]
    A_ORIGIN,  // [[grid_origin]]
};

template <class P>
MSL_INLINE P from_position(const uint32_t* position) {
    if constexpr (metal::is_vector_v<P>) {
        P result(0);
        for (unsigned i = 0; i < sizeof(P) / sizeof(result.x) && i < 3; ++i)
            result[i] = static_cast<metal::msl_detail::element_t<P>>(position[i]);
        return result;
    } else {
        return static_cast<P>(position[0]);
    }
}

// The value of one thread attribute.
template <class P, int kind>
MSL_INLINE P attribute(const MslThread* thread) {
    if constexpr (kind == A_TPIG) return from_position<P>(thread->tid_grid);
    if constexpr (kind == A_TPITG) return from_position<P>(thread->tid_tg);
    if constexpr (kind == A_TGPIG) return from_position<P>(thread->tg_grid);
    if constexpr (kind == A_TGPG) return from_position<P>(thread->tpg);
    if constexpr (kind == A_TPTG) return from_position<P>(thread->tpt);
    if constexpr (kind == A_DTPTG) return from_position<P>(thread->tpt_dispatch);
    if constexpr (kind == A_TPG) return from_position<P>(thread->grid);
    if constexpr (kind == A_TIITG) return static_cast<P>(thread->index_tg);
    if constexpr (kind == A_LANE) return static_cast<P>(thread->lane);
    if constexpr (kind == A_SG) return static_cast<P>(thread->sg);
    if constexpr (kind == A_NSG) return static_cast<P>(thread->nsg);
    if constexpr (kind == A_SIMDSZ) return static_cast<P>(MSL_LANES);
    if constexpr (kind == A_QUAD) return static_cast<P>(thread->index_tg / 4);
    if constexpr (kind == A_QLANE) return static_cast<P>(thread->index_tg % 4);
    if constexpr (kind == A_NQUAD) return static_cast<P>((thread->tpt[0] * thread->tpt[1] * thread->tpt[2] + 3) / 4);
    if constexpr (kind == A_ORIGIN) return P(0);
}

template <int kind, int index>
struct ki {};

}  // namespace msl_

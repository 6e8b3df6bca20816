// Barriers and fences.
#pragma once
#include "scalars.h"

namespace metal {

enum class mem_flags : uint {
    mem_none = 0,
    mem_device = 1,
    mem_threadgroup = 2,
    mem_texture = 4,
    mem_threadgroup_imageblock = 8,
    mem_object_data = 16,
};
MSL_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
MSL_INLINE constexpr mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags(uint(a) & uint(b)); }

enum thread_scope : int {
    thread_scope_thread,
    thread_scope_simdgroup,
    thread_scope_threadgroup,
    thread_scope_device
};
// A name that some projects declare in namespace metal themselves: theirs hides this one.
namespace msl_scopes {
constexpr thread_scope thread_scope_system = static_cast<thread_scope>(4);
}
using namespace msl_scopes;
enum memory_order { memory_order_relaxed, memory_order_seq_cst };

// `line` is the line of the caller.
MSL_INLINE void threadgroup_barrier(mem_flags flags, int line = __builtin_LINE()) { msl_tg_barrier(uint(flags), line); }
MSL_INLINE void threadgroup_barrier(mem_flags flags, thread_scope, int line = __builtin_LINE()) {
    msl_tg_barrier(uint(flags), line);
}

// Without flags it orders no memory. Lanes run in step where it matters, so there is nothing to wait for.
MSL_INLINE void simdgroup_barrier(mem_flags flags, int line = __builtin_LINE()) {
    if (uint(flags)) msl_sg_barrier(uint(flags), line);
}
MSL_INLINE void simdgroup_barrier(mem_flags flags, thread_scope, int line = __builtin_LINE()) {
    if (uint(flags)) msl_sg_barrier(uint(flags), line);
}

MSL_INLINE void atomic_thread_fence(mem_flags, memory_order = memory_order_relaxed,
                                    thread_scope = thread_scope_device) {
    MSL_FENCE();
}

}  // namespace metal

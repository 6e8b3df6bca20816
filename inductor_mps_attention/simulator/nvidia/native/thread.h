// What a thread knows about itself, barriers, and the lane numbers that kernels see.
//
// Apple's 8x8 fragment has its row in lane bits 4 2 1 and its column in bits 3 0; the fragment of NVIDIA's product has
// them in bits 4 3 2 and 1 0. Kernels are shown a lane number with Apple's order of bits, so fragments need no shuffle:
// thread `threadIdx.x` of the hardware is lane `apple_lane(threadIdx.x % 32)` of its simdgroup. The map permutes bits,
// so it commutes with xor. Blocks are one-dimensional; positions are counted from the numbers shown.
#pragma once

MSL_INLINE constexpr uint32_t apple_lane(uint32_t lane) { return (lane & 17u) | (lane & 2u) << 2 | (lane & 12u) >> 1; }
MSL_INLINE constexpr uint32_t hardware_lane(uint32_t lane) {
    return (lane & 17u) | (lane & 8u) >> 2 | (lane & 6u) << 1;
}
MSL_INLINE uint32_t own_hardware_lane() { return threadIdx.x & 31u; }

struct MslThread {
    uint32_t tid_grid[3], tid_tg[3], tg_grid[3];
    uint32_t tpg[3];   // threadgroups per grid
    uint32_t tpt[3];   // threads in this threadgroup; smaller for the last one of an uneven grid
    uint32_t grid[3];  // threads per grid
    uint32_t index_tg, lane, sg, nsg;
    uint32_t tpt_dispatch[3];  // threads per threadgroup as dispatched
};

// What the library functions ask of their thread.
struct MslLane {
    uint32_t lane = apple_lane(own_hardware_lane());
    MSL_INLINE const MslLane* operator->() const { return this; }
};
#define msl_thread (MslLane{})

// MSL_JITTER, a number: simdgroups leave each barrier at a time of their own, so that a missing one shows.
MSL_INLINE void msl_jitter() {
#ifdef MSL_JITTER
    uint32_t chance = (blockIdx.x * 64u + (threadIdx.x >> 5)) * 2654435761u ^ (MSL_JITTER * 40503u) ^ clock();
    chance ^= chance >> 15;
    chance *= 2246822519u;
    chance ^= chance >> 13;
    if (chance & 1u) __nanosleep((chance >> 8) % 4000u);
#endif
}

// MSL_POISON: threadgroup memory starts as NaN in every threadgroup.
MSL_INLINE void msl_poison() {
#ifdef MSL_POISON
    uint32_t low, high;
    asm volatile("mov.u32 %0, %%reserved_smem_offset_end;" : "=r"(low));
    asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(high));
    for (uint32_t at = low + threadIdx.x * 4; at + 4 <= high; at += blockDim.x * 4)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(0xffffffffu) : "memory");
    __syncthreads();
#endif
}

MSL_INLINE void msl_assertion_failed(const char*, int) { __trap(); }

MSL_INLINE void msl_tg_barrier(uint32_t, int) {
    __syncthreads();
    msl_jitter();
}
MSL_INLINE void msl_sg_barrier(uint32_t, int) { __syncwarp(); }

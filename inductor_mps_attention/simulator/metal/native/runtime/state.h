// What the runtime knows while a threadgroup runs. One OS thread ("worker") runs one threadgroup at a time.
#pragma once
#include <setjmp.h>

#include "../abi.h"
#include "context.h"

namespace runtime {

constexpr size_t ARENA_BYTES = 1u << 20;    // physical threadgroup memory; the limit reported is MslLaunch::tg_limit
constexpr size_t ARRAY_ALIGNMENT = 16;      // Metal counts each threadgroup variable rounded up to it
constexpr size_t STACK_GUARD_BYTES = 4096;  // below each stack; as the distance between stacks is then no power
                                            // of two, stacks do not compete for the same cache sets
constexpr size_t RED_ZONE = 256;            // bytes between arrays in check mode
constexpr int MAX_ARRAYS = 64;
constexpr uint32_t MEM_DEVICE = 1, MEM_THREADGROUP = 2;  // metal::mem_flags
constexpr uint32_t ALL_LANES = ~0u;

struct Simdgroup;
struct Threadgroup;
struct Cell;

// A kernel thread. `thread` comes first: msl_thread, which points to it, is a pointer to the running lane.
struct Lane {
    MslThread thread;
    Context context;
    Threadgroup* threadgroup;
    Simdgroup* simdgroup;
    Lane* next;         // the lane that follows it in its simdgroup, the first after the last
    uint32_t next_bit;  // of `next`; 0 unless lanes run in forward order
    uint32_t bit;       // its own, in lane sets
    float* tile;        // its elements of the simdgroup's tile A; B, C and D follow
    // Where it waits.
    MslOpFn operation;
    int line;
    bool special;  // check mode, or no fibers: entries of the runtime have more to do than wait
    void* pc;
    char* stack_low;
    char* stack_high;
};

// Lanes are bit sets. A live lane is in exactly one of ready, in_operation, at_barrier, at_simdgroup_barrier.
struct Simdgroup {
    uint32_t ready, in_operation, at_barrier, at_simdgroup_barrier;
    uint32_t all;   // lanes that exist
    uint32_t live;  // lanes that have not returned
    int made_way;   // the lane that last let others go first: the next turn is that of the lane after it
    int index;
    bool uniform;  // all lanes in_operation wait in first_operation at first_line
    MslOpFn first_operation;
    int first_line;
    Lane* lanes;
    void* operands[MSL_LANES];
    uint32_t barrier_flags;
    // Epochs of ordering between the lanes of this simdgroup, for the race check.
    uint32_t threadgroup_epoch, device_epoch, operation_epoch;
    // Operands A, B, C and result D of the simdgroup matrix product in progress, row-major.
    alignas(64) float tiles[4][64];
};

struct ThreadgroupArray {
    const void* key;
    size_t offset, size;
    const char* name;
};

struct Threadgroup {
    MslLaunch* launch;
    MslArgs args;
    Lane* lanes;
    Simdgroup* simdgroups;
    Context scheduler;  // where to go when every lane has returned
    jmp_buf leave;      // the same without fibers
    uint32_t thread_count, simdgroup_count;
    uint32_t returned;  // threads that returned from the kernel
    uint32_t index;     // linear, in the grid
    uint32_t barrier_flags;
    int barrier_line;  // of the first thread at the barrier; -1: none yet
    bool barrier_uniform;
    bool check;
    uint32_t order;
    uint64_t random_state;
    uint32_t idle_atomics;  // atomic loads since a lane last made way for another
    uint32_t absent_lanes;  // whose values the lane operation in progress reads though they take no part in it
    // Threadgroup memory.
    char* arena;
    size_t arena_used;
    ThreadgroupArray arrays[MAX_ARRAYS];
    int array_count;
    // Check mode.
    Cell* arena_shadow;
    uint32_t threadgroup_epoch, device_epoch;
    uint32_t last_region;
    uint64_t counters[MSL_COUNTERS];
};

// The threadgroup that this OS thread runs, null outside a launch.
extern __thread Threadgroup* current __attribute__((tls_model("initial-exec")));

// The lane that this OS thread runs, null outside a kernel.
inline Lane* running_lane() { return reinterpret_cast<Lane*>(const_cast<MslThread*>(msl_thread)); }

}  // namespace runtime

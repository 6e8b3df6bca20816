// One OS thread's share of a launch: stacks, lanes and threadgroup memory, kept between launches.
#pragma once
#include <atomic>

#include "state.h"

namespace runtime {

struct Grid {
    uint32_t groups[3];
    uint64_t total;
};

Grid grid_of(const MslLaunch* launch);

// Runs threadgroups until `next` has passed the last one.
void run_threadgroups(MslLaunch* launch, const Grid& grid, std::atomic<uint64_t>* next);

}  // namespace runtime

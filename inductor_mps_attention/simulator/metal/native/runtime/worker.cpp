#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <memory>

#include "arena.h"
#include "scheduler.h"
#include "signals.h"

namespace runtime {
namespace {

constexpr uint64_t THREADS_AT_ONCE = 1024;  // a worker without fibers takes about so many threads at a time

char* map_memory(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "Metal simulator: no memory for %zu bytes of thread stacks\n", bytes);
        abort();
    }
    return static_cast<char*>(memory);
}

class Stacks {
  public:
    ~Stacks() { release(); }

    void reserve(uint32_t count, size_t bytes) {
        if (count <= count_ && bytes == bytes_) return;
        release();
        count_ = count;
        bytes_ = bytes;
        memory_ = map_memory(count * pitch());
        for (uint32_t i = 0; i < count; ++i) mprotect(memory_ + i * pitch(), STACK_GUARD_BYTES, PROT_NONE);
    }
    char* low(uint32_t index) const { return memory_ + index * pitch() + STACK_GUARD_BYTES; }
    char* high(uint32_t index) const { return low(index) + bytes_; }

  private:
    size_t pitch() const { return bytes_ + STACK_GUARD_BYTES; }
    void release() {
        if (memory_) munmap(memory_, count_ * pitch());
        memory_ = nullptr;
    }
    char* memory_ = nullptr;
    uint32_t count_ = 0;
    size_t bytes_ = 0;
};

struct Worker {
    SignalStack signal_stack;
    Stacks stacks;
    Lane lanes[MSL_MAX_THREADS];
    Simdgroup simdgroups[MSL_MAX_THREADS / MSL_LANES];
    Threadgroup group;
    char* arena = map_memory(ARENA_BYTES);
    ~Worker() { munmap(arena, ARENA_BYTES); }
};

void matrix_position(uint32_t lane, uint32_t* row, uint32_t* column) {
    uint32_t quad = lane / 4;
    *row = (quad & 4) + lane / 2 % 4;
    *column = (quad & 2) * 2 + lane % 2 * 2;
}

void fiber_main() {
    Lane* lane = running_lane();
    lane->threadgroup->launch->entry(&lane->threadgroup->args, &lane->thread);
    retire(running_lane());
}

// Where a threadgroup lies in the grid, and its size: smaller at the end of an uneven grid.
struct Extent {
    uint32_t position[3], size[3], threads;
};

Extent extent_of(const MslLaunch* launch, const Grid& grid, uint64_t index) {
    Extent extent;
    extent.position[0] = static_cast<uint32_t>(index % grid.groups[0]);
    extent.position[1] = static_cast<uint32_t>(index / grid.groups[0] % grid.groups[1]);
    extent.position[2] = static_cast<uint32_t>(index / grid.groups[0] / grid.groups[1]);
    for (int axis = 0; axis < 3; ++axis) {
        uint32_t left = launch->grid[axis] - extent.position[axis] * launch->group[axis];
        extent.size[axis] = left < launch->group[axis] ? left : launch->group[axis];
    }
    extent.threads = extent.size[0] * extent.size[1] * extent.size[2];
    return extent;
}

// What all threads of a threadgroup see alike.
MslThread common_to_threads(const MslLaunch* launch, const Grid& grid, const Extent& extent) {
    MslThread thread;
    memset(&thread, 0, sizeof thread);
    for (int axis = 0; axis < 3; ++axis) {
        thread.tg_grid[axis] = extent.position[axis];
        thread.tpg[axis] = grid.groups[axis];
        thread.tpt[axis] = extent.size[axis];
        thread.tpt_dispatch[axis] = launch->group[axis];
        thread.grid[axis] = launch->grid[axis];
    }
    thread.nsg = (extent.threads + MSL_LANES - 1) / MSL_LANES;
    return thread;
}

void set_position(MslThread* thread, const MslLaunch* launch, const Extent& extent, uint32_t index,
                  const uint32_t position[3]) {
    for (int axis = 0; axis < 3; ++axis) {
        thread->tid_tg[axis] = position[axis];
        thread->tid_grid[axis] = extent.position[axis] * launch->group[axis] + position[axis];
    }
    thread->index_tg = index;
    thread->lane = index % MSL_LANES;
    thread->sg = index / MSL_LANES;
}

void advance(uint32_t position[3], const uint32_t size[3]) {
    if (++position[0] < size[0]) return;
    position[0] = 0;
    if (++position[1] < size[1]) return;
    position[1] = 0;
    ++position[2];
}

void start_simdgroups(Threadgroup* group) {
    for (uint32_t i = 0; i < group->simdgroup_count; ++i) {
        Simdgroup& simdgroup = group->simdgroups[i];
        uint32_t left = group->thread_count - i * MSL_LANES;
        uint32_t lanes = left >= MSL_LANES ? ALL_LANES : (1u << left) - 1;
        simdgroup.ready = simdgroup.live = simdgroup.all = lanes;
        simdgroup.in_operation = simdgroup.at_barrier = simdgroup.at_simdgroup_barrier = 0;
        simdgroup.index = static_cast<int>(i);
        simdgroup.lanes = &group->lanes[i * MSL_LANES];
        simdgroup.uniform = true;
        simdgroup.made_way = group->order == MSL_REVERSE ? MSL_LANES : -1;
        simdgroup.barrier_flags = 0;
        simdgroup.threadgroup_epoch = simdgroup.device_epoch = simdgroup.operation_epoch = 0;
    }
}

void start_group(Threadgroup* group, const Extent& extent, uint64_t index) {
    group->thread_count = extent.threads;
    group->simdgroup_count = (extent.threads + MSL_LANES - 1) / MSL_LANES;
    group->index = static_cast<uint32_t>(index);
    group->returned = group->barrier_flags = group->idle_atomics = 0;
    group->barrier_line = -1;
    group->barrier_uniform = true;
    group->threadgroup_epoch = group->device_epoch = 0;
    group->random_state = 0x9E3779B97F4A7C15ull * (group->launch->seed + 1) + index * 0xD1B54A32D192ED03ull + 1;
    group->counters[MSL_COUNT_THREADGROUPS]++;
}

void join_simdgroup(Lane* lane, Simdgroup* simdgroup, uint32_t order) {
    uint32_t next = (lane->thread.lane + 1) % static_cast<uint32_t>(__builtin_popcount(simdgroup->all));
    lane->simdgroup = simdgroup;
    lane->bit = 1u << lane->thread.lane;
    lane->next = &simdgroup->lanes[next];
    lane->next_bit = order == MSL_FORWARD ? 1u << next : 0;
    matrix_position(lane->thread.lane, &lane->thread.matrix_row, &lane->thread.matrix_column);
    lane->tile = &simdgroup->tiles[0][lane->thread.matrix_row * 8 + lane->thread.matrix_column];
}

void run_on_fibers(Worker* worker, const MslLaunch* launch, const Grid& grid, const Extent& extent) {
    Threadgroup* group = &worker->group;
    reset_arrays(group);
    start_simdgroups(group);
    MslThread common = common_to_threads(launch, grid, extent);
    uint32_t position[3] = {0, 0, 0};
    for (uint32_t i = 0; i < extent.threads; ++i) {
        Lane* lane = &worker->lanes[i];
        lane->thread = common;
        set_position(&lane->thread, launch, extent, i, position);
        advance(position, extent.size);
        lane->threadgroup = group;
        lane->special = group->check;
        lane->stack_low = worker->stacks.low(i);
        lane->stack_high = worker->stacks.high(i);
        char* top = lane->stack_high - (i * 37 % 61 + 1) * 64;  // spread over the first-level cache
        new_context(&lane->context, top, &fiber_main);
        join_simdgroup(lane, &worker->simdgroups[i / MSL_LANES], launch->order);
    }
    Lane* first = first_lane(group);
    msl_thread = &first->thread;
    switch_context(&group->scheduler, &first->context);
}

void run_in_loop(Worker* worker, const MslLaunch* launch, const Grid& grid, const Extent& extent) {
    Threadgroup* group = &worker->group;
    Lane* lane = &worker->lanes[0];
    lane->thread = common_to_threads(launch, grid, extent);
    lane->simdgroup = &worker->simdgroups[0];
    lane->threadgroup = group;
    lane->special = true;
    msl_thread = &lane->thread;
    uint32_t position[3] = {0, 0, 0};
    if (_setjmp(group->leave)) return;  // abandoned
    for (uint32_t i = 0; i < extent.threads; ++i) {
        set_position(&lane->thread, launch, extent, i, position);
        advance(position, extent.size);
        launch->entry(&group->args, &lane->thread);
    }
    msl_thread = nullptr;
}

void place_dynamic_arrays(Threadgroup* group, const MslLaunch* launch) {
    static const char* const names[MSL_MAX_DYNAMIC_ARRAYS] = {"threadgroup(0)", "threadgroup(1)", "threadgroup(2)",
                                                              "threadgroup(3)", "threadgroup(4)", "threadgroup(5)",
                                                              "threadgroup(6)", "threadgroup(7)"};
    for (int i = 0; i < MSL_MAX_DYNAMIC_ARRAYS; ++i)
        if (launch->dyn_tg[i])
            group->args.tg[i] = place_array(group, &group->args.tg[i], launch->dyn_tg[i], 4, names[i], 0, nullptr);
}

void start_launch(Worker* worker, MslLaunch* launch) {
    Threadgroup* group = &worker->group;
    memset(static_cast<void*>(group), 0, sizeof *group);
    group->launch = launch;
    group->lanes = worker->lanes;
    group->simdgroups = worker->simdgroups;
    group->arena = worker->arena;
    group->check = launch->check != 0;
    group->order = launch->order;
    memcpy(group->args.buf, launch->buf, sizeof launch->buf);
    place_dynamic_arrays(group, launch);
}

void add_counters(MslLaunch* launch, Threadgroup* group) {
    group->counters[MSL_COUNT_EXP2] = msl_exp2_calls;
    for (int i = 0; i < MSL_COUNTERS; ++i)
        __atomic_fetch_add(&launch->counters[i], group->counters[i], __ATOMIC_RELAXED);
}

Worker* this_threads_worker() {
    static thread_local std::unique_ptr<Worker> worker;
    if (!worker) worker.reset(new Worker);
    return worker.get();
}

}  // namespace

Grid grid_of(const MslLaunch* launch) {
    Grid grid;
    for (int axis = 0; axis < 3; ++axis)
        grid.groups[axis] = (launch->grid[axis] + launch->group[axis] - 1) / launch->group[axis];
    grid.total = static_cast<uint64_t>(grid.groups[0]) * grid.groups[1] * grid.groups[2];
    return grid;
}

void run_threadgroups(MslLaunch* launch, const Grid& grid, std::atomic<uint64_t>* next) {
    Worker* worker = this_threads_worker();
    Threadgroup* group = &worker->group;
    uint32_t threads = launch->group[0] * launch->group[1] * launch->group[2];
    bool fibers = launch->order != MSL_FIBERLESS;
    if (fibers) worker->stacks.reserve(threads, static_cast<size_t>(launch->stack_kb) << 10);
    start_launch(worker, launch);
    msl_exp2_calls = 0;
    current = group;
    uint64_t at_once = fibers || threads >= THREADS_AT_ONCE ? uint64_t(1) : THREADS_AT_ONCE / threads;
    for (uint64_t begin; (begin = next->fetch_add(at_once)) < grid.total;) {
        uint64_t end = begin + at_once < grid.total ? begin + at_once : grid.total;
        for (uint64_t step = begin; step < end; ++step) {
            uint64_t index = launch->order == MSL_REVERSE ? grid.total - 1 - step : step;
            Extent extent = extent_of(launch, grid, index);
            start_group(group, extent, index);
            (fibers ? &run_on_fibers : &run_in_loop)(worker, launch, grid, extent);
        }
    }
    current = nullptr;
    add_counters(launch, group);
}

}  // namespace runtime

#include "scheduler.h"

#include <stdlib.h>

#include "product.h"
#include "report.h"
#include "shadow.h"

__thread const MslThread* msl_thread __attribute__((tls_model("initial-exec")));
__thread uint64_t msl_exp2_calls __attribute__((tls_model("initial-exec")));

namespace runtime {

__thread Threadgroup* current __attribute__((tls_model("initial-exec")));

namespace {

uint32_t random_below(Threadgroup* group, uint32_t bound) {
    uint64_t x = group->random_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    group->random_state = x;
    return static_cast<uint32_t>(x >> 16) % bound;
}

int highest(uint32_t set) { return 31 - __builtin_clz(set); }

// A lane of `ready`, following `after` in the launch's order; -1 and 32 stand before the first and after the last.
int pick(Threadgroup* group, uint32_t ready, int after) {
    if (group->order == MSL_FORWARD) {
        uint32_t later = after < 31 ? ready & (ALL_LANES << (after + 1)) : 0;
        return __builtin_ctz(later ? later : ready);
    }
    if (group->order == MSL_REVERSE) {
        uint32_t earlier = after < 32 ? ready & ((1u << after) - 1) : ready;
        return highest(earlier ? earlier : ready);
    }
    for (int skip = random_below(group, __builtin_popcount(ready)); skip; --skip) ready &= ready - 1;
    return __builtin_ctz(ready);
}

bool runnable(const Simdgroup& simdgroup) {
    return simdgroup.ready || simdgroup.in_operation || simdgroup.at_simdgroup_barrier;
}

void execute(Threadgroup* group, Simdgroup* simdgroup, MslOpFn run, uint32_t lanes) {
    group->counters[run == &run_product ? MSL_COUNT_PRODUCTS : MSL_COUNT_COLLECTIVES]++;
    if (lanes == simdgroup->all) simdgroup->operation_epoch++;
    const Lane& first = simdgroup->lanes[__builtin_ctz(lanes)];
    // A matrix is spread over 32 lanes: with fewer its product is undefined. Other operations are defined over the
    // lanes that take part, and lanes that returned or do not exist are no divergence.
    if (group->check && run == &run_product && lanes != ALL_LANES)
        report_partial_product(group, simdgroup, first, lanes);
    else if (group->check && lanes != simdgroup->live)
        report_divergent_operation(group, simdgroup, first, lanes);
    group->absent_lanes = 0;
    run(simdgroup->operands, lanes);
    if (group->check && group->absent_lanes) report_inactive_lane(group, simdgroup, first, group->absent_lanes);
    simdgroup->in_operation &= ~lanes;
    simdgroup->ready |= lanes;
}

// No lane of the simdgroup is ready. If its lanes wait in different operations, those at the smallest line go first.
void execute_divergent(Threadgroup* group, Simdgroup* simdgroup) {
    int leader = -1;
    for (uint32_t rest = simdgroup->in_operation; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        if (leader < 0 || simdgroup->lanes[lane].line < simdgroup->lanes[leader].line) leader = lane;
    }
    const Lane& first = simdgroup->lanes[leader];
    uint32_t active = 0;
    for (uint32_t rest = simdgroup->in_operation; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        if (simdgroup->lanes[lane].operation == first.operation && simdgroup->lanes[lane].line == first.line)
            active |= 1u << lane;
    }
    if (active != simdgroup->all) group->counters[MSL_COUNT_DIVERGENT]++;
    execute(group, simdgroup, first.operation, active);
    simdgroup->uniform = false;
}

void release_simdgroup_barrier(Threadgroup* group, Simdgroup* simdgroup) {
    if (group->check && simdgroup->at_simdgroup_barrier != simdgroup->all)
        report_partial_simdgroup_barrier(group, simdgroup);
    if (simdgroup->barrier_flags & MEM_THREADGROUP) simdgroup->threadgroup_epoch++;
    if (simdgroup->barrier_flags & MEM_DEVICE) simdgroup->device_epoch++;
    simdgroup->barrier_flags = 0;
    simdgroup->ready |= simdgroup->at_simdgroup_barrier;
    simdgroup->at_simdgroup_barrier = 0;
    group->counters[MSL_COUNT_SIMDGROUP_BARRIERS]++;
}

// Makes a lane of a simdgroup without ready lanes ready; false if all wait at a threadgroup barrier or returned.
bool unblock(Threadgroup* group, Simdgroup* simdgroup) {
    if (simdgroup->in_operation) {
        execute_divergent(group, simdgroup);
        return true;
    }
    if (!simdgroup->at_simdgroup_barrier) return false;
    release_simdgroup_barrier(group, simdgroup);
    return true;
}

void release_barrier(Threadgroup* group) {
    if (!group->barrier_uniform) report_barrier_mismatch(group);
    if (group->returned && group->check) report_barrier_after_return(group);
    for (uint32_t i = 0; i < group->simdgroup_count; ++i) {
        Simdgroup& simdgroup = group->simdgroups[i];
        simdgroup.ready |= simdgroup.at_barrier;
        simdgroup.at_barrier = 0;
    }
    if (group->barrier_flags & MEM_THREADGROUP) group->threadgroup_epoch++;
    if (group->barrier_flags & MEM_DEVICE) group->device_epoch++;
    group->barrier_flags = 0;
    group->barrier_line = -1;
    group->barrier_uniform = true;
    group->counters[MSL_COUNT_BARRIERS]++;
}

// Another simdgroup with something to run, following `after` in the launch's order; null if there is none.
Simdgroup* other_simdgroup(Threadgroup* group, int after) {
    uint32_t count = group->simdgroup_count;
    uint32_t shift = group->order == MSL_RANDOM ? random_below(group, count) : 0;
    for (uint32_t step = 1; step <= count; ++step) {
        uint32_t index =
            group->order == MSL_REVERSE ? (after + count - step % count) % count : (after + step + shift) % count;
        if (runnable(group->simdgroups[index])) return &group->simdgroups[index];
    }
    return nullptr;
}

// The simdgroup that goes first after a threadgroup barrier.
Simdgroup* first_after_barrier(Threadgroup* group) {
    bool reverse = group->order == MSL_REVERSE;
    Simdgroup* simdgroup = reverse ? &group->simdgroups[group->simdgroup_count - 1] : group->simdgroups;
    while (!simdgroup->ready) simdgroup += reverse ? -1 : 1;
    return simdgroup;
}

}  // namespace

void schedule(Lane* from) {
    Threadgroup* group = from->threadgroup;
    Simdgroup* simdgroup = from->simdgroup;
    int after = from->thread.lane;
    group->idle_atomics = 0;
    for (;;) {
        if (simdgroup->ready) {
            Lane* next = &simdgroup->lanes[pick(group, simdgroup->ready, after)];
            if (next != from) switch_to(from, next);
            return;
        }
        if (unblock(group, simdgroup)) continue;
        after = group->order == MSL_REVERSE ? 32 : -1;
        if (Simdgroup* other = other_simdgroup(group, simdgroup->index)) {
            simdgroup = other;
        } else if (group->returned == group->thread_count) {
            msl_thread = nullptr;
            switch_context(&from->context, &group->scheduler);
            return;
        } else {
            release_barrier(group);
            simdgroup = first_after_barrier(group);
        }
    }
}

void retire(Lane* lane) {
    Threadgroup* group = lane->threadgroup;
    if (group->check) settle_pending_write(group);
    lane->simdgroup->ready &= ~lane->bit;
    lane->simdgroup->live &= ~lane->bit;
    group->returned++;
    wait(lane->simdgroup, lane);
    abort();  // a returned lane is in no set, so nothing switches to it
}

void make_way(Threadgroup* group) {
    Lane* lane = running_lane();
    uint32_t count = group->simdgroup_count;
    lane->simdgroup->made_way = static_cast<int>(lane->thread.lane);
    for (uint32_t step = 1; step <= count; ++step) {
        Simdgroup* simdgroup = &group->simdgroups[(lane->simdgroup->index + step) % count];
        uint32_t others = simdgroup == lane->simdgroup ? simdgroup->ready & ~lane->bit : simdgroup->ready;
        if (!others && (simdgroup == lane->simdgroup || !unblock(group, simdgroup))) continue;
        if (!others) others = simdgroup->ready;
        switch_to(lane, &simdgroup->lanes[pick(group, others, simdgroup->made_way)]);
        return;
    }
}

void abandon(Threadgroup* group) {
    Context lost;
    if (group->check) settle_pending_write(group);
    msl_thread = nullptr;
    if (group->order == MSL_FIBERLESS) longjmp(group->leave, 1);
    switch_context(&lost, &group->scheduler);
    abort();
}

Lane* first_lane(Threadgroup* group) {
    if (group->order == MSL_REVERSE) return &group->lanes[group->thread_count - 1];
    if (group->order == MSL_RANDOM) return &group->lanes[random_below(group, group->thread_count)];
    return group->lanes;
}

void execute_for_all(Threadgroup* group, Simdgroup* simdgroup, MslOpFn run) {
    execute(group, simdgroup, run, simdgroup->all);
}

}  // namespace runtime

using namespace runtime;

// What an entry has to do first in a special launch; false if it can't do its work.
static bool prepare(Lane* lane, const char* what, int line, void* pc) {
    Threadgroup* group = lane->threadgroup;
    if (group->check) settle_pending_write(group);
    if (group->order != MSL_FIBERLESS) return true;
    report_unsupported(group, what, line, pc);
    return false;
}

static Simdgroup* arrive(Lane* lane, int line, void* pc) {
    lane->line = line;
    lane->pc = pc;
    lane->simdgroup->ready &= ~lane->bit;
    return lane->simdgroup;
}

extern "C" void msl_collective(MslOpFn operation, void* operands, int line) {
    Lane* lane = running_lane();
    void* pc = __builtin_return_address(0);
    if (__builtin_expect(lane->special, 0) && !prepare(lane, "a simdgroup operation", line, pc)) return;
    lane->simdgroup->operands[lane->thread.lane] = operands;
    wait_in_operation(lane, operation, line, pc);
}

extern "C" void msl_count_shuffle() {
    current->counters[MSL_COUNT_SHUFFLES]++;
    current->counters[MSL_COUNT_COLLECTIVES]--;  // where `execute` has counted it
}

extern "C" uint32_t msl_inactive_fill(int lane) {
    if (lane >= 0 && lane < MSL_LANES) current->absent_lanes |= 1u << lane;
    return current->launch->inactive_fill;
}

extern "C" void msl_assertion_failed(const char* condition, int line) {
    report_assertion(current, running_lane(), condition, line, __builtin_return_address(0));
}

extern "C" MslPair msl_product(MslPair a, MslPair b, MslPair c, int line) {
    Lane* lane = running_lane();
    void* pc = __builtin_return_address(0);
    if (__builtin_expect(lane->special, 0)) {
        if (!prepare(lane, "a simdgroup matrix product", line, pc)) return c;
        if (lane->threadgroup->check && (is_uninitialised(a) || is_uninitialised(b) || is_uninitialised(c)))
            report_uninitialised_operand(lane->threadgroup, line, pc);
    }
    float* tile = lane->tile;
    __builtin_memcpy(tile, &a, sizeof a);
    __builtin_memcpy(tile + 64, &b, sizeof b);
    __builtin_memcpy(tile + 128, &c, sizeof c);
    wait_in_operation(lane, &run_product, line, pc);
    MslPair d;
    __builtin_memcpy(&d, running_lane()->tile + 192, sizeof d);
    return d;
}

extern "C" void msl_tg_barrier(uint32_t flags, int line) {
    Lane* lane = running_lane();
    void* pc = __builtin_return_address(0);
    if (__builtin_expect(lane->special, 0) && !prepare(lane, "threadgroup_barrier", line, pc)) return;
    Threadgroup* group = lane->threadgroup;
    Simdgroup* simdgroup = arrive(lane, line, pc);
    simdgroup->at_barrier |= lane->bit;
    group->barrier_flags |= flags;
    if (group->barrier_line < 0) group->barrier_line = line;
    if (group->barrier_line != line) group->barrier_uniform = false;
    wait(simdgroup, lane);
}

extern "C" void msl_sg_barrier(uint32_t flags, int line) {
    Lane* lane = running_lane();
    void* pc = __builtin_return_address(0);
    if (__builtin_expect(lane->special, 0) && !prepare(lane, "simdgroup_barrier", line, pc)) return;
    Simdgroup* simdgroup = arrive(lane, line, pc);
    simdgroup->at_simdgroup_barrier |= lane->bit;
    simdgroup->barrier_flags |= flags;
    if (simdgroup->at_simdgroup_barrier == simdgroup->live) {
        release_simdgroup_barrier(lane->threadgroup, simdgroup);
        if (lane->threadgroup->order == MSL_FORWARD) return;
    }
    wait(simdgroup, lane);
}

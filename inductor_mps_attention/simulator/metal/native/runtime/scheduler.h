// Who runs next. Threads are cooperative: they run until they return or wait, so schedules are deterministic.
#pragma once
#include "state.h"

namespace runtime {

// Continues with another lane; returns when `from` is scheduled again.
void schedule(Lane* from);

// The running lane has returned from the kernel. Does not return.
[[noreturn]] void retire(Lane* lane);

// The running lane stays ready, and others that can run go first: it may be waiting for what they do.
void make_way(Threadgroup* group);

// Leaves the threadgroup with its threads where they are.
[[noreturn]] void abandon(Threadgroup* group);

// The lane that starts a threadgroup.
Lane* first_lane(Threadgroup* group);

inline void switch_to(Lane* from, Lane* to) {
    msl_thread = &to->thread;
    switch_context(&from->context, &to->context);
}

// As `schedule`, with the common case inline. That the next lane is ready is a guess which the processor's branch
// prediction makes well, so that the switch need not wait for the bookkeeping.
inline void wait(Simdgroup* simdgroup, Lane* lane) {
    if (__builtin_expect(simdgroup->ready & lane->next_bit, 1))
        switch_to(lane, lane->next);
    else
        schedule(lane);
}

// The last lane to come to an operation executes it for all, and goes on at once.
void execute_for_all(Threadgroup* group, Simdgroup* simdgroup, MslOpFn run);

// Lets `lane` wait in a lane operation until it is executed.
inline void wait_in_operation(Lane* lane, MslOpFn run, int line, void* pc) {
    Simdgroup* simdgroup = lane->simdgroup;
    uint32_t before = simdgroup->in_operation, now = before | lane->bit;
    lane->operation = run;
    lane->line = line;
    lane->pc = pc;
    if (!before) {
        simdgroup->first_operation = run;
        simdgroup->first_line = line;
        simdgroup->uniform = true;
    } else if (simdgroup->first_operation != run || simdgroup->first_line != line) {
        simdgroup->uniform = false;
    }
    simdgroup->ready &= ~lane->bit;
    simdgroup->in_operation = now;
    if (now == simdgroup->all && simdgroup->uniform)
        execute_for_all(lane->threadgroup, simdgroup, run);
    else
        wait(simdgroup, lane);
}

}  // namespace runtime

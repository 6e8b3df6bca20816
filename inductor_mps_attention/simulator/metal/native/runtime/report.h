// Findings of a launch, as MslReport structs. One entry for each kind and place; more of the same only count.
#pragma once
#include "state.h"

namespace runtime {

// What the compiler puts into private variables and arrays in check mode (-ftrivial-auto-var-init=pattern).
constexpr uint32_t PRIVATE_FILL = 0xFEFEFEFE;

// An access that a check is about.
struct Access {
    const char* address;
    size_t size;
    bool write, atomic;
    void* pc;
};

// Where the memory of an access lies: buffer >= 0, or a threadgroup array by name.
struct Place {
    int buffer;
    const char* name;
    size_t offset;
};

// The earlier party of a race.
struct Party {
    int thread;
    int64_t threadgroup;
    void* pc;
    bool write;
};

void report_race(Threadgroup* group, uint32_t kind, const Access& access, const Place& place, const Party& other);
void report_uninitialised(Threadgroup* group, const Access& access, const Place& place);
void report_uninitialised_store(Threadgroup* group, const Access& access, const Place& place);
void report_uninitialised_operand(Threadgroup* group, int line, void* pc);
void report_read_only_write(Threadgroup* group, const Access& access, const Place& place);
void report_outside_arrays(Threadgroup* group, const Access& access, int64_t arena_offset);
void report_null_pointer(Threadgroup* group, const Access& access);
void report_outside_buffers(Threadgroup* group, const Access& access, size_t distance, bool past_end, int buffer);
void report_divergent_operation(Threadgroup* group, const Simdgroup* simdgroup, const Lane& leader, uint32_t active);
void report_partial_product(Threadgroup* group, const Simdgroup* simdgroup, const Lane& leader, uint32_t active);
void report_inactive_lane(Threadgroup* group, const Simdgroup* simdgroup, const Lane& leader, uint32_t absent);
void report_partial_simdgroup_barrier(Threadgroup* group, const Simdgroup* simdgroup);
void report_barrier_mismatch(Threadgroup* group);
void report_barrier_after_return(Threadgroup* group);
void report_threadgroup_memory(Threadgroup* group, const char* name, size_t total, int line, void* pc);
void report_unsupported(Threadgroup* group, const char* what, int line, void* pc);
void report_endless_wait(Threadgroup* group, const Access& access);
void report_assertion(Threadgroup* group, const Lane* lane, const char* condition, int line, void* pc);
void report_stack_overflow(Threadgroup* group, void* pc);
void report_exception(Threadgroup* group, const char* signal, const char* address, void* pc);
void report_division(Threadgroup* group, void* pc);
void report_smashed_stack(Threadgroup* group, void* pc);
void report_index(Threadgroup* group, long long index, const char* what, void* pc);
void report_private_pointer(Threadgroup* group, const char* type, void* pc);

}  // namespace runtime

// Atomic operations. Real atomic instructions, since threadgroups run on several OS threads; memory order is relaxed,
// as in Metal. A thread that only looks (load, failed exchange) makes way for others now and then: it may be waiting.
#include <string.h>

#include "checks.h"
#include "scheduler.h"

namespace runtime {
namespace {

constexpr uint32_t LOOKS_BEFORE_MAKING_WAY = 64;
constexpr uint32_t LOOKS_BEFORE_GIVING_UP = 1u << 26;

float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint32_t as_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

uint32_t combined(int op, uint32_t old, uint32_t value) {
    int32_t old_signed = static_cast<int32_t>(old), value_signed = static_cast<int32_t>(value);
    switch (op) {
        case MSL_ATOMIC_MIN_UNSIGNED:
            return old < value ? old : value;
        case MSL_ATOMIC_MAX_UNSIGNED:
            return old > value ? old : value;
        case MSL_ATOMIC_MIN_SIGNED:
            return old_signed < value_signed ? old : value;
        case MSL_ATOMIC_MAX_SIGNED:
            return old_signed > value_signed ? old : value;
        case MSL_ATOMIC_ADD_FLOAT:
            return as_bits(as_float(old) + as_float(value));
        case MSL_ATOMIC_SUB_FLOAT:
            return as_bits(as_float(old) - as_float(value));
        default:
            __builtin_trap();
    }
}

uint64_t combined(int op, uint64_t old, uint64_t value) {
    switch (op) {
        case MSL_ATOMIC_MIN_UNSIGNED:
            return old < value ? old : value;
        case MSL_ATOMIC_MAX_UNSIGNED:
            return old > value ? old : value;
        default:
            __builtin_trap();
    }
}

template <class T>
T modify(T* p, int op, T value) {
    switch (op) {
        case MSL_ATOMIC_ADD:
            return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
        case MSL_ATOMIC_SUB:
            return __atomic_fetch_sub(p, value, __ATOMIC_RELAXED);
        case MSL_ATOMIC_AND:
            return __atomic_fetch_and(p, value, __ATOMIC_RELAXED);
        case MSL_ATOMIC_OR:
            return __atomic_fetch_or(p, value, __ATOMIC_RELAXED);
        case MSL_ATOMIC_XOR:
            return __atomic_fetch_xor(p, value, __ATOMIC_RELAXED);
        case MSL_ATOMIC_EXCHANGE:
            return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);
        case MSL_ATOMIC_LOAD:
            return __atomic_load_n(p, __ATOMIC_RELAXED);
        case MSL_ATOMIC_STORE:
            __atomic_store_n(p, value, __ATOMIC_RELAXED);
            return value;
        default:
            break;
    }
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, combined(op, old, value), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

void note_look(Threadgroup* group, const void* p, size_t size, void* pc) {
    if (++group->idle_atomics % LOOKS_BEFORE_MAKING_WAY || group->order == MSL_FIBERLESS) return;
    if (group->idle_atomics >= LOOKS_BEFORE_GIVING_UP) {
        report_endless_wait(group, Access{static_cast<const char*>(p), size, false, true, pc});
        abandon(group);
    }
    make_way(group);
}

template <class T>
T checked_modify(void* p, int op, T value, void* pc) {
    Threadgroup* group = current;
    group->counters[MSL_COUNT_ATOMICS]++;
    bool look = op == MSL_ATOMIC_LOAD, reads = op != MSL_ATOMIC_STORE && op != MSL_ATOMIC_EXCHANGE;
    if (group->check && reads && !check_access(p, sizeof(T), false, true, pc)) return 0;
    if (group->check && !look && !check_access(p, sizeof(T), true, true, pc)) return 0;
    T old = modify(static_cast<T*>(p), op, value);
    if (look) note_look(group, p, sizeof(T), pc);
    return old;
}

}  // namespace
}  // namespace runtime

using namespace runtime;

extern "C" uint32_t msl_atomic_rmw32(void* p, int op, uint32_t value) {
    return checked_modify<uint32_t>(p, op, value, __builtin_return_address(0));
}

extern "C" uint64_t msl_atomic_rmw64(void* p, int op, uint64_t value) {
    return checked_modify<uint64_t>(p, op, value, __builtin_return_address(0));
}

extern "C" int msl_atomic_cas32(void* p, void* expected, uint32_t value) {
    Threadgroup* group = current;
    void* pc = __builtin_return_address(0);
    group->counters[MSL_COUNT_ATOMICS]++;
    if (group->check && !check_access(p, sizeof value, false, true, pc)) return 1;
    if (group->check && !check_access(p, sizeof value, true, true, pc)) return 1;
    bool done = __atomic_compare_exchange_n(static_cast<uint32_t*>(p), static_cast<uint32_t*>(expected), value, false,
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    if (!done) note_look(group, p, sizeof value, pc);
    return done;
}

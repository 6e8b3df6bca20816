#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <mutex>

namespace runtime {
namespace {

std::mutex reports_lock;

// A report about the running thread, to be completed by the caller.
MslReport start(const Threadgroup* group, MslKind kind, MslSeverity severity, void* pc) {
    MslReport report;
    memset(&report, 0, sizeof report);
    report.kind = kind;
    report.severity = severity;
    report.pc = reinterpret_cast<uint64_t>(pc);
    report.thread = msl_thread ? static_cast<int32_t>(msl_thread->index_tg) : -1;
    report.threadgroup = group->index;
    report.other_thread = -1;
    report.other_threadgroup = -1;
    report.buffer = -1;
    return report;
}

MslReport start(const Threadgroup* group, MslKind kind, MslSeverity severity, const Access& access,
                const Place& place) {
    MslReport report = start(group, kind, severity, access.pc);
    report.address = reinterpret_cast<uint64_t>(access.address);
    report.offset = static_cast<int64_t>(place.offset);
    report.buffer = place.buffer;
    if (place.name) snprintf(report.name, sizeof report.name, "%s", place.name);
    return report;
}

__attribute__((format(printf, 3, 4))) void finish(const Threadgroup* group, MslReport& report, const char* format,
                                                  ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(report.message, sizeof report.message, format, arguments);
    va_end(arguments);
    std::lock_guard<std::mutex> guard(reports_lock);
    MslLaunch* launch = group->launch;
    launch->nreports++;
    if (report.severity == MSL_ERROR) launch->nerrors++;
    for (uint32_t i = 0; i < launch->nstored; ++i) {
        MslReport& known = launch->reports[i];
        if (known.kind == report.kind && known.pc == report.pc && known.line == report.line) {
            known.repeats++;
            return;
        }
    }
    if (launch->nstored < MSL_MAX_REPORTS) launch->reports[launch->nstored++] = report;
}

const char* verb(bool write) { return write ? "write" : "read"; }

// "buffer(2)" or "threadgroup array 'keys'".
struct PlaceText {
    char text[80];
    explicit PlaceText(const Place& place) {
        if (place.buffer >= 0)
            snprintf(text, sizeof text, "buffer(%d)", place.buffer);
        else
            snprintf(text, sizeof text, "threadgroup array '%.50s'", place.name);
    }
};

// A report about the lane that waits somewhere.
MslReport start(const Threadgroup* group, MslKind kind, MslSeverity severity, const Lane& lane) {
    MslReport report = start(group, kind, severity, lane.pc);
    report.line = lane.line;
    report.thread = static_cast<int32_t>(lane.thread.index_tg);
    return report;
}

const Lane& first_of(const Simdgroup* simdgroup, uint32_t lanes) { return simdgroup->lanes[__builtin_ctz(lanes)]; }

const Lane* first_returned(const Threadgroup* group) {
    for (uint32_t i = 0; i < group->simdgroup_count; ++i) {
        const Simdgroup& simdgroup = group->simdgroups[i];
        if (simdgroup.live != simdgroup.all) return &first_of(&simdgroup, simdgroup.all & ~simdgroup.live);
    }
    return nullptr;
}

void name_other(MslReport& report, const Lane& lane) {
    report.other_thread = static_cast<int32_t>(lane.thread.index_tg);
    report.other_threadgroup = report.threadgroup;
}

}  // namespace

void report_race(Threadgroup* group, uint32_t kind, const Access& access, const Place& place, const Party& other) {
    bool same_value = kind == MSL_SAME_VALUE_WRITE;
    MslReport report = start(group, MslKind(kind), same_value ? MSL_WARNING : MSL_ERROR, access, place);
    report.other_thread = other.thread;
    report.other_threadgroup = other.threadgroup;
    report.other_pc = reinterpret_cast<uint64_t>(other.pc);
    finish(group, report,
           "%s/%s race on %s + %zu bytes: thread %d of threadgroup %lld, then thread %d of threadgroup %u, %s",
           verb(other.write), verb(access.write), PlaceText(place).text, place.offset, other.thread,
           static_cast<long long>(other.threadgroup), report.thread, group->index,
           same_value ? "both store the same value" : "without a barrier that orders them");
}

void report_uninitialised(Threadgroup* group, const Access& access, const Place& place) {
    MslReport report = start(group, MSL_UNINITIALISED, MSL_ERROR, access, place);
    finish(group, report, "read of uninitialised threadgroup memory: %s + %zu bytes by thread %d of threadgroup %u",
           PlaceText(place).text, place.offset, report.thread, group->index);
}

void report_uninitialised_store(Threadgroup* group, const Access& access, const Place& place) {
    MslReport report = start(group, MSL_UNINITIALISED, MSL_ERROR, access, place);
    finish(group, report,
           "an uninitialised private variable is stored, or follows from one: to %s + %zu bytes by thread %d of "
           "threadgroup %u",
           PlaceText(place).text, place.offset, report.thread, group->index);
}

void report_uninitialised_operand(Threadgroup* group, int line, void* pc) {
    MslReport report = start(group, MSL_UNINITIALISED, MSL_ERROR, pc);
    report.line = line;
    finish(group, report, "simdgroup matrix product of an uninitialised matrix, by thread %d of threadgroup %u",
           report.thread, group->index);
}

void report_read_only_write(Threadgroup* group, const Access& access, const Place& place) {
    MslReport report = start(group, MSL_READ_ONLY_WRITE, MSL_ERROR, access, place);
    finish(group, report, "write to read-only %s + %zu bytes by thread %d of threadgroup %u", PlaceText(place).text,
           place.offset, report.thread, group->index);
}

void report_outside_arrays(Threadgroup* group, const Access& access, int64_t arena_offset) {
    const ThreadgroupArray* nearest = nullptr;
    for (int i = 0; i < group->array_count; ++i)
        if (static_cast<int64_t>(group->arrays[i].offset) <= arena_offset) nearest = &group->arrays[i];
    if (!nearest && group->array_count) nearest = &group->arrays[0];
    size_t offset = static_cast<size_t>(arena_offset) - (nearest ? nearest->offset : 0);
    Place place{-1, nearest ? nearest->name : "", offset};
    MslReport report = start(group, MSL_OUT_OF_BOUNDS, MSL_ERROR, access, place);
    finish(group, report,
           "out-of-bounds %s of %zu bytes by thread %d of threadgroup %u: %s + %lld, which has %zu bytes",
           verb(access.write), access.size, report.thread, group->index, PlaceText(place).text,
           static_cast<long long>(place.offset), nearest ? nearest->size : 0);
}

void report_null_pointer(Threadgroup* group, const Access& access) {
    MslReport report = start(group, MSL_OUT_OF_BOUNDS, MSL_ERROR, access, Place{-1, nullptr, 0});
    finish(group, report,
           "out-of-bounds %s of %zu bytes by thread %d of threadgroup %u: at address %#llx, through the null pointer "
           "of a buffer that is not given",
           verb(access.write), access.size, report.thread, group->index,
           static_cast<unsigned long long>(report.address));
}

void report_outside_buffers(Threadgroup* group, const Access& access, size_t distance, bool past_end, int buffer) {
    Place place{buffer, nullptr, distance};
    MslReport report = start(group, MSL_OUT_OF_BOUNDS, MSL_ERROR, access, place);
    if (!past_end) report.offset = -static_cast<int64_t>(distance);
    finish(group, report, "out-of-bounds %s of %zu bytes by thread %d of threadgroup %u: %zu bytes %s buffer(%d)",
           verb(access.write), access.size, report.thread, group->index, distance,
           past_end ? "past the end of" : "before the start of", buffer);
}

void report_divergent_operation(Threadgroup* group, const Simdgroup* simdgroup, const Lane& leader, uint32_t active) {
    MslReport report = start(group, MSL_DIVERGENT_OPERATION, MSL_WARNING, leader);
    name_other(report, first_of(simdgroup, simdgroup->live & ~active));
    finish(group, report,
           "simdgroup operation by a part of simdgroup %d of threadgroup %u: lanes 0x%08x of 0x%08x take part, with "
           "thread %d, without thread %d",
           simdgroup->index, group->index, active, simdgroup->live, report.thread, report.other_thread);
}

void report_partial_product(Threadgroup* group, const Simdgroup* simdgroup, const Lane& leader, uint32_t active) {
    MslReport report = start(group, MSL_DIVERGENT_OPERATION, MSL_ERROR, leader);
    uint32_t others = simdgroup->all & ~active;
    if (others) name_other(report, first_of(simdgroup, others));
    finish(group, report,
           "simdgroup matrix product by a part of simdgroup %d of threadgroup %u: lanes 0x%08x of 32 take part, with "
           "thread %d, without thread %d (-1: it does not exist)",
           simdgroup->index, group->index, active, report.thread, report.other_thread);
}

void report_inactive_lane(Threadgroup* group, const Simdgroup* simdgroup, const Lane& leader, uint32_t absent) {
    MslReport report = start(group, MSL_INACTIVE_LANE, MSL_WARNING, leader);
    finish(group, report,
           "a shuffle in simdgroup %d of threadgroup %u reads lanes 0x%08x, which take no part in it: the values are "
           "undefined",
           simdgroup->index, group->index, absent);
}

void report_partial_simdgroup_barrier(Threadgroup* group, const Simdgroup* simdgroup) {
    uint32_t lanes = simdgroup->at_simdgroup_barrier;
    MslReport report = start(group, MSL_BARRIER_NOT_REACHED, MSL_ERROR, first_of(simdgroup, lanes));
    name_other(report, first_of(simdgroup, simdgroup->all & ~lanes));
    finish(group, report,
           "simdgroup_barrier reached by lanes 0x%08x of 0x%08x only, simdgroup %d of threadgroup %u: by thread %d, "
           "not by thread %d",
           lanes, simdgroup->all, simdgroup->index, group->index, report.thread, report.other_thread);
}

void report_barrier_mismatch(Threadgroup* group) {
    const Lane *one = nullptr, *two = nullptr;
    for (uint32_t i = 0; i < group->simdgroup_count; ++i) {
        const Simdgroup* simdgroup = &group->simdgroups[i];
        for (uint32_t rest = simdgroup->at_barrier; rest; rest &= rest - 1) {
            const Lane* lane = &first_of(simdgroup, rest);
            if (!one) one = lane;
            if (!two && lane->line != one->line) two = lane;
        }
    }
    if (!two) return;
    MslReport report = start(group, MSL_BARRIER_MISMATCH, MSL_ERROR, *one);
    report.other_pc = reinterpret_cast<uint64_t>(two->pc);
    report.other_line = two->line;
    name_other(report, *two);
    finish(group, report,
           "threads of threadgroup %u wait at different barriers: thread %d at line %d, thread %d at line %d",
           group->index, report.thread, report.line, report.other_thread, report.other_line);
}

void report_barrier_after_return(Threadgroup* group) {
    for (uint32_t i = 0; i < group->simdgroup_count; ++i) {
        const Simdgroup* simdgroup = &group->simdgroups[i];
        if (!simdgroup->at_barrier) continue;
        MslReport report = start(group, MSL_BARRIER_NOT_REACHED, MSL_ERROR, first_of(simdgroup, simdgroup->at_barrier));
        if (const Lane* returned = first_returned(group)) name_other(report, *returned);
        finish(group, report,
               "threadgroup_barrier not reached by %u threads of threadgroup %u that already returned: by thread %d, "
               "not by thread %d",
               group->returned, group->index, report.thread, report.other_thread);
        return;
    }
}

void report_threadgroup_memory(Threadgroup* group, const char* name, size_t total, int line, void* pc) {
    MslReport report = start(group, MSL_THREADGROUP_MEMORY, MSL_ERROR, pc);
    report.line = line;
    snprintf(report.name, sizeof report.name, "%s", name);
    finish(group, report,
           "Threadgroup memory size (%zu) exceeds the maximum threadgroup memory allowed (%u) at '%.60s'", total,
           group->launch->tg_limit, name);
}

void report_unsupported(Threadgroup* group, const char* what, int line, void* pc) {
    MslReport report = start(group, MSL_UNSUPPORTED, MSL_ERROR, pc);
    report.line = line;
    finish(group, report, "%s in a kernel that was launched without fibers", what);
}

void report_endless_wait(Threadgroup* group, const Access& access) {
    MslReport report = start(group, MSL_ENDLESS_WAIT, MSL_ERROR, access, Place{-1, nullptr, 0});
    finish(group, report, "thread %d of threadgroup %u spins on an atomic that no other thread changes", report.thread,
           group->index);
}

void report_assertion(Threadgroup* group, const Lane* lane, const char* condition, int line, void* pc) {
    MslReport report = start(group, MSL_ASSERTION, MSL_ERROR, pc);
    report.line = line;
    report.thread = static_cast<int32_t>(lane->thread.index_tg);
    finish(group, report, "assert(%.200s) does not hold in thread %d of threadgroup %u", condition, report.thread,
           group->index);
}

void report_stack_overflow(Threadgroup* group, void* pc) {
    MslReport report = start(group, MSL_STACK_OVERFLOW, MSL_ERROR, pc);
    finish(group, report, "private arrays of thread %d exceed its stack of %u KiB", report.thread,
           group->launch->stack_kb);
}

void report_index(Threadgroup* group, long long index, const char* what, void* pc) {
    MslReport report = start(group, MSL_OUT_OF_BOUNDS, MSL_ERROR, pc);
    finish(group, report, "out-of-bounds access by thread %d of threadgroup %u: index %lld of %.100s", report.thread,
           group->index, index, what);
}

void report_private_pointer(Threadgroup* group, const char* type, void* pc) {
    MslReport report = start(group, MSL_OUT_OF_BOUNDS, MSL_ERROR, pc);
    finish(group, report,
           "out-of-bounds access by thread %d of threadgroup %u: a pointer to %.100s leads outside of its array",
           report.thread, group->index, type);
}

void report_smashed_stack(Threadgroup* group, void* pc) {
    MslReport report = start(group, MSL_OUT_OF_BOUNDS, MSL_ERROR, pc);
    finish(group, report,
           "out-of-bounds write by thread %d of threadgroup %u: past the end of a private array, found where its "
           "function ends",
           report.thread, group->index);
}

void report_exception(Threadgroup* group, const char* signal, const char* address, void* pc) {
    uint64_t place = reinterpret_cast<uint64_t>(pc);
    bool own = place >= group->launch->mod_lo && place < group->launch->mod_hi;
    MslReport report = start(group, MSL_OUT_OF_BOUNDS, MSL_ERROR, own ? pc : nullptr);
    report.address = reinterpret_cast<uint64_t>(address);
    finish(group, report,
           "out-of-bounds access by thread %d of threadgroup %u, or what follows from one: %.40s at address %#llx",
           report.thread, group->index, signal, static_cast<unsigned long long>(report.address));
}

void report_division(Threadgroup* group, void* pc) {
    MslReport report = start(group, MSL_DIVISION_BY_ZERO, MSL_WARNING, pc);
    finish(group, report,
           "integer division by zero, or of the least integer by -1, by thread %d of threadgroup %u: the result is "
           "unspecified",
           report.thread, group->index);
}

}  // namespace runtime

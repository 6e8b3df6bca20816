#include "checks.h"

#include "scheduler.h"
#include "shadow.h"

namespace runtime {
namespace {

bool inside(const void* address, const void* low, const void* high) { return address >= low && address < high; }

// Memory that only this thread sees, or that belongs to the launcher.
bool private_memory(const Threadgroup* group, const Lane* lane, const void* address) {
    if (inside(address, lane->stack_low, lane->stack_high)) return true;
    if (inside(address, group, group + 1)) return true;
    if (inside(address, group->lanes, group->lanes + MSL_MAX_THREADS)) return true;
    return inside(address, &msl_thread, &msl_thread + 1) || inside(address, &msl_exp2_calls, &msl_exp2_calls + 1);
}

bool another_stack(const Threadgroup* group, const void* address) {
    for (uint32_t i = 0; i < group->thread_count; ++i)
        if (inside(address, group->lanes[i].stack_low, group->lanes[i].stack_high)) return true;
    return false;
}

void count_bytes(Threadgroup* group, const Access& access, MslCounter read, MslCounter written) {
    group->counters[access.write ? written : read] += access.size;
}

bool inside_arena(const Threadgroup* group, const Access& access) {
    return inside(access.address, group->arena, group->arena + ARENA_BYTES) &&
           access.size <= static_cast<size_t>(group->arena + ARENA_BYTES - access.address);
}

bool check_threadgroup_memory(Threadgroup* group, const Access& access) {
    size_t offset = static_cast<size_t>(access.address - group->arena);
    for (int i = 0; i < group->array_count; ++i) {
        const ThreadgroupArray& array = group->arrays[i];
        if (offset < array.offset || offset + access.size > array.offset + array.size) continue;
        count_bytes(group, access, MSL_COUNT_THREADGROUP_READ, MSL_COUNT_THREADGROUP_WRITTEN);
        Epochs epochs{group->threadgroup_epoch, running_lane()->simdgroup->threadgroup_epoch};
        touch(group, array_shadow(i), access, Place{-1, array.name, offset - array.offset}, epochs, true);
        return true;
    }
    report_outside_arrays(group, access, offset);
    return false;
}

bool check_region(Threadgroup* group, const Access& access, uint32_t region) {
    MslLaunch* launch = group->launch;
    uint64_t address = reinterpret_cast<uint64_t>(access.address);
    if (address < launch->reg_lo[region] || address + access.size > launch->reg_hi[region]) return false;
    group->last_region = region;
    Place place{launch->reg_index[region], nullptr, address - launch->reg_lo[region]};
    if (access.write && !launch->reg_rw[region]) report_read_only_write(group, access, place);
    count_bytes(group, access, MSL_COUNT_DEVICE_READ, MSL_COUNT_DEVICE_WRITTEN);
    Epochs epochs{group->device_epoch, running_lane()->simdgroup->device_epoch};
    touch(group, region_shadow(region), access, place, epochs, false);
    return true;
}

// Whether a stray access meets only memory that was put there for it: it may be done, and the thread goes on.
bool within_a_guard(const MslLaunch* launch, const Access& access) {
    uint64_t address = reinterpret_cast<uint64_t>(access.address);
    for (uint32_t i = 0; i < launch->nregions; ++i) {
        uint64_t low = launch->reg_lo[i] - launch->guard, high = launch->reg_hi[i] + launch->guard;
        if (address >= low && address < high && access.size <= high - address) return true;
    }
    return false;
}

// Far from everything that the kernel was given: told as an offset from what is nearest.
void report_outside(Threadgroup* group, const Access& access) {
    constexpr uint64_t NULL_PAGES = 1 << 20;
    MslLaunch* launch = group->launch;
    uint64_t address = reinterpret_cast<uint64_t>(access.address);
    if (address < NULL_PAGES) return report_null_pointer(group, access);
    int64_t from_arena = static_cast<int64_t>(address - reinterpret_cast<uint64_t>(group->arena));
    uint64_t smallest = from_arena < 0 ? -static_cast<uint64_t>(from_arena) : static_cast<uint64_t>(from_arena);
    if (!group->array_count) smallest = ~uint64_t(0);
    int buffer = -1;
    bool past_end = true;
    for (uint32_t i = 0; i < launch->nregions; ++i) {
        bool past = address + access.size > launch->reg_hi[i];
        uint64_t distance = 0;
        if (past)
            distance = address >= launch->reg_hi[i] ? address - launch->reg_hi[i] : 0;
        else
            distance = launch->reg_lo[i] - address;
        if (distance >= smallest) continue;
        smallest = distance;
        buffer = launch->reg_index[i];
        past_end = past;
    }
    if (buffer < 0) return report_outside_arrays(group, access, from_arena);
    report_outside_buffers(group, access, smallest, past_end, buffer);
}

}  // namespace

bool check_access(const void* address, size_t size, bool write, bool atomic, void* pc) {
    Threadgroup* group = current;
    if (!group || !group->check || !msl_thread) return true;
    settle_pending_write(group);
    Lane* lane = running_lane();
    if (private_memory(group, lane, address)) return true;
    Access access{static_cast<const char*>(address), size, write, atomic, pc};
    if (inside_arena(group, access)) return check_threadgroup_memory(group, access);
    for (uint32_t i = 0; i < group->launch->nregions; ++i)
        if (check_region(group, access, (group->last_region + i) % group->launch->nregions)) return true;
    uint64_t value = reinterpret_cast<uint64_t>(address);
    if (value >= group->launch->mod_lo && value + size <= group->launch->mod_hi) return true;
    if (another_stack(group, address)) return true;  // operands of a lane operation
    report_outside(group, access);
    // Nothing can stop the compiled access that follows, so the threadgroup ends here.
    if (!within_a_guard(group->launch, access)) abandon(group);
    return false;
}

void start_checks(MslLaunch* launch) {
    for (uint32_t i = 0; i < launch->nregions; ++i)
        region_shadow(i).cover(launch->reg_hi[i] - launch->reg_lo[i], launch->reg_gran[i]);
}

void finish_checks(MslLaunch* launch) {
    for (uint32_t i = 0; i < launch->nregions; ++i) region_shadow(i).release();
    for (int i = 0; i < MAX_ARRAYS; ++i) array_shadow(i).release();
}

}  // namespace runtime

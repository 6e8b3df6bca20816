#include "shadow.h"

#include <string.h>
#include <sys/mman.h>

namespace runtime {
namespace {

size_t cell_bytes(size_t bytes, uint32_t granule) { return ((bytes + granule - 1) / granule + 1) * sizeof(Cell); }

// Zero pages that cost nothing until touched.
Cell* new_cells(size_t bytes, uint32_t granule) {
    void* memory = mmap(nullptr, cell_bytes(bytes, granule), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) __builtin_trap();
    return static_cast<Cell*>(memory);
}

// A second write whose bytes are compared when the thread comes back to the runtime.
struct PendingWrite {
    bool active;
    Access access;
    Place place;
    Party other;
    char before[64];
};
PendingWrite pending;

// The last store of one word, whose value is looked at when the thread comes back to the runtime.
struct StoredWord {
    bool active;
    Access access;
    Place place;
};
StoredWord stored;

int simdgroup_of(const Stamp& stamp) { return (stamp.thread - 1) / MSL_LANES; }

// Whether something orders an earlier access before the running thread's access.
bool ordered(const Stamp& earlier, const Stamp& now) {
    if (earlier.threadgroup != now.threadgroup) return false;
    if (earlier.thread == now.thread || earlier.epoch != now.epoch) return true;
    return simdgroup_of(earlier) == simdgroup_of(now) && earlier.simdgroup_epoch != now.simdgroup_epoch;
}

bool reads_ordered(const Cell& cell, const Stamp& now, uint32_t operation_epoch) {
    const Stamp& read = cell.read;
    bool same_group = read.threadgroup == now.threadgroup;
    if (cell.readers == SEVERAL_SIMDGROUPS) return same_group && read.epoch != now.epoch;
    bool same_simdgroup = same_group && simdgroup_of(read) == simdgroup_of(now);
    // A lane operation of the whole simdgroup orders earlier reads before later writes: all lanes had to come.
    if (same_simdgroup && cell.read_operation_epoch != operation_epoch) return true;
    if (cell.readers == ONE_THREAD) return ordered(read, now);
    return same_group && (read.epoch != now.epoch || (same_simdgroup && read.simdgroup_epoch != now.simdgroup_epoch));
}

// The last thread that read an element, or the one before if the last is the running thread itself.
Party reader_of(const Cell& cell, const Stamp& now) {
    bool own = cell.read.thread == now.thread && cell.read.threadgroup == now.threadgroup;
    if (own && cell.earlier_reader)
        return Party{cell.earlier_reader - 1, cell.earlier_threadgroup, cell.earlier_pc, false};
    return Party{cell.read.thread - 1, cell.read.threadgroup, cell.read_pc, false};
}

void judge_race(Threadgroup* group, Cell& cell, const Access& access, const Place& place, const Party& other) {
    if (cell.reported) return;
    bool may_be_same = other.write && access.write && !access.atomic && other.threadgroup == group->index;
    if (may_be_same && access.size <= sizeof pending.before) {
        if (pending.active) return;  // another element of the same access
        pending = PendingWrite{true, access, place, other, {}};
        memcpy(pending.before, access.address, access.size);
        return;
    }
    cell.reported = true;
    report_race(group, MSL_RACE, access, place, other);
}

void note_read(Cell& cell, const Stamp& now, uint32_t operation_epoch, void* pc) {
    const Stamp& last = cell.read;
    bool live = last.thread && last.threadgroup == now.threadgroup && last.epoch == now.epoch &&
                last.simdgroup_epoch == now.simdgroup_epoch;
    if (last.thread && last.threadgroup != now.threadgroup)
        cell.readers = SEVERAL_SIMDGROUPS;
    else if (!live)
        cell.readers = ONE_THREAD;
    else if (last.thread != now.thread && simdgroup_of(last) != simdgroup_of(now))
        cell.readers = SEVERAL_SIMDGROUPS;
    else if (last.thread != now.thread && cell.readers == ONE_THREAD)
        cell.readers = ONE_SIMDGROUP;
    if (cell.readers == SEVERAL_SIMDGROUPS && live) return;
    if (last.thread && (last.thread != now.thread || last.threadgroup != now.threadgroup)) {
        cell.earlier_reader = last.thread;
        cell.earlier_threadgroup = last.threadgroup;
        cell.earlier_pc = cell.read_pc;
    }
    cell.read = now;
    cell.read_operation_epoch = operation_epoch;
    cell.read_pc = pc;
}

void touch_cell(Threadgroup* group, Cell& cell, const Access& access, const Place& place, const Stamp& now,
                bool tracks_initialisation) {
    uint32_t operation_epoch = running_lane()->simdgroup->operation_epoch;
    bool both_atomic = access.atomic && cell.write.atomic;
    if (!access.write && tracks_initialisation && !cell.initialised && !cell.reported) {
        cell.reported = true;
        report_uninitialised(group, access, place);
    }
    if (cell.write.thread && !both_atomic && !ordered(cell.write, now))
        judge_race(group, cell, access, place,
                   Party{cell.write.thread - 1, cell.write.threadgroup, cell.write_pc, true});
    if (!access.write) {
        note_read(cell, now, operation_epoch, access.pc);
        return;
    }
    if (cell.read.thread && !(access.atomic && cell.read.atomic) && !reads_ordered(cell, now, operation_epoch))
        judge_race(group, cell, access, place, reader_of(cell, now));
    cell.write = now;
    cell.write_pc = access.pc;
    cell.initialised = true;
}

Shadow region_shadows[MSL_MAX_REGIONS];
Shadow array_shadows[MAX_ARRAYS];

}  // namespace

Shadow::~Shadow() { release(); }

void Shadow::release() {
    if (cells_) munmap(cells_, cell_bytes(bytes_, granule_));
    cells_ = nullptr;
    bytes_ = 0;
}

void Shadow::cover(size_t bytes, uint32_t granule) {
    release();
    bytes_ = bytes;
    granule_ = granule ? granule : 1;
    cells_ = new_cells(bytes_, granule_);
}

void Shadow::forget() {
    if (cells_) memset(static_cast<void*>(cells_), 0, cell_bytes(bytes_, granule_));
}

void Shadow::refine() {
    Cell* fine = new_cells(bytes_, 1);
    for (size_t byte = 0; byte < bytes_; ++byte) fine[byte] = cells_[byte / granule_];
    munmap(cells_, cell_bytes(bytes_, granule_));
    cells_ = fine;
    granule_ = 1;
}

Cell* Shadow::find(size_t offset, size_t size, size_t* count) {
    if (offset % granule_ || size % granule_) refine();
    *count = size / granule_;
    return cells_ + offset / granule_;
}

void touch(Threadgroup* group, Shadow& shadow, const Access& access, const Place& place, Epochs epochs,
           bool tracks_initialisation) {
    Stamp now{group->index, epochs.threadgroup, epochs.simdgroup, static_cast<uint16_t>(msl_thread->index_tg + 1),
              access.atomic};
    size_t count;
    Cell* cells = shadow.find(place.offset, access.size, &count);
    if (access.write && !access.atomic && access.size == sizeof PRIVATE_FILL) stored = StoredWord{true, access, place};
    Place element = place;
    for (size_t i = 0; i < count; ++i) {
        touch_cell(group, cells[i], access, element, now, tracks_initialisation);
        element.offset += shadow.granule();
    }
}

void settle_pending_write(Threadgroup* group) {
    if (stored.active) {
        stored.active = false;
        if (memcmp(stored.access.address, &PRIVATE_FILL, sizeof PRIVATE_FILL) == 0)
            report_uninitialised_store(group, stored.access, stored.place);
    }
    if (!pending.active) return;
    pending.active = false;
    bool same = memcmp(pending.before, pending.access.address, pending.access.size) == 0;
    report_race(group, same ? MSL_SAME_VALUE_WRITE : MSL_RACE, pending.access, pending.place, pending.other);
}

Shadow& region_shadow(uint32_t region) { return region_shadows[region]; }
Shadow& array_shadow(int array) { return array_shadows[array]; }

}  // namespace runtime

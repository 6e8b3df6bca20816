// Check mode: what is known about each element of the memory that threads share, and the verdict on an access.
#pragma once
#include "report.h"

namespace runtime {

// Who accessed an element, and in which barrier epochs. thread is the index in its threadgroup plus 1; 0: nobody.
struct Stamp {
    uint32_t threadgroup, epoch, simdgroup_epoch;
    uint16_t thread;
    bool atomic;
};

// How many threads read an element since its last ordered access.
enum Readers : uint8_t { ONE_THREAD, ONE_SIMDGROUP, SEVERAL_SIMDGROUPS };

struct Cell {
    Stamp write, read;
    uint32_t read_operation_epoch;
    Readers readers;
    bool initialised, reported;
    uint16_t earlier_reader;  // as Stamp::thread: another one than `read`, to name in a report of a race with readers
    uint32_t earlier_threadgroup;
    void* write_pc;
    void* read_pc;
    void* earlier_pc;
};

// The cells of one buffer or threadgroup array: one a granule, the smallest unit accessed so far.
class Shadow {
  public:
    Shadow() = default;
    Shadow(const Shadow&) = delete;
    ~Shadow();
    void cover(size_t bytes, uint32_t granule);
    void forget();  // every element as if never accessed
    void release();
    // The cells of an access; switches to single bytes when an access is finer than the granule.
    Cell* find(size_t offset, size_t size, size_t* count);
    uint32_t granule() const { return granule_; }

  private:
    void refine();
    Cell* cells_ = nullptr;
    size_t bytes_ = 0;
    uint32_t granule_ = 1;
};

// Barrier epochs that order accesses to one kind of memory.
struct Epochs {
    uint32_t threadgroup, simdgroup;
};

// Records an access to the elements of one array, and reports what is wrong with it.
void touch(Threadgroup* group, Shadow& shadow, const Access& access, const Place& place, Epochs epochs,
           bool tracks_initialisation);

// What can be judged only once the write has happened: of a write/write race, whether the bytes are equal, which makes
// it a warning; of a stored word, whether it is the fill of private memory. Called by every entry of the runtime before
// it does anything else.
void settle_pending_write(Threadgroup* group);

// The shadows of the launch being checked; check mode runs on one worker.
Shadow& region_shadow(uint32_t region);
Shadow& array_shadow(int array);

}  // namespace runtime

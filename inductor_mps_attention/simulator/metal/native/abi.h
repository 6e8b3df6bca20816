// The seam between a translated Metal module, the runtime library and the Python side.
//
// A translated module is one shared object: the shim headers, the kernel's text as C++ and one `extern "C"` entry per
// kernel. It is loaded after the runtime library (which must be loaded with RTLD_GLOBAL) and calls the functions below.
// Python fills one MslLaunch and calls `msl_dispatch`; every result comes back inside the same struct. The mirror of
// these structs in Python must have the sizes that `msl_launch_size` and `msl_report_size` return.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum {
    MSL_MAX_BUFFERS = 31,
    MSL_MAX_DYNAMIC_ARRAYS = 8,
    MSL_MAX_REGIONS = 64,
    MSL_MAX_REPORTS = 32,
    MSL_MESSAGE_BYTES = 320,
    MSL_MAX_THREADS = 1024,
    MSL_LANES = 32,
};

// In which order threads run between two synchronisation points. FIBERLESS is a plain loop over the threads of a kernel
// that has no barrier, no lane operation and no threadgroup memory: faster, and an error for any other kernel.
enum MslOrder { MSL_FORWARD = 0, MSL_REVERSE = 1, MSL_RANDOM = 2, MSL_FIBERLESS = 9 };

enum MslSeverity { MSL_ERROR = 1, MSL_WARNING = 2 };

enum MslKind {
    MSL_RACE = 1,                 // two threads, one address, at least one write, nothing orders them
    MSL_SAME_VALUE_WRITE = 2,     // warning: a write/write race within a threadgroup whose writes store the same bytes
    MSL_OUT_OF_BOUNDS = 3,        // outside every buffer, or outside every threadgroup array
    MSL_UNINITIALISED = 4,        // read of threadgroup memory that nobody wrote
    MSL_READ_ONLY_WRITE = 5,      // write to a `constant` or `const` buffer
    MSL_BARRIER_NOT_REACHED = 6,  // some threads returned, or some lanes went elsewhere
    MSL_BARRIER_MISMATCH = 7,     // threads of one threadgroup wait at different barriers
    MSL_DIVERGENT_OPERATION = 8,  // a matrix product by a part of the simdgroup; warning: another lane operation
    MSL_THREADGROUP_MEMORY = 9,   // threadgroup arrays exceed the limit, 32 KiB on Apple GPUs
    MSL_ENDLESS_WAIT = 10,        // a thread spins on an atomic that no other thread can change any more
    MSL_UNSUPPORTED = 11,         // a synchronising operation in a kernel launched as FIBERLESS
    MSL_STACK_OVERFLOW = 12,      // private arrays of a thread exceed the fiber's stack
    MSL_INACTIVE_LANE = 13,       // warning: a shuffle reads the value of a lane that takes no part in it
    MSL_ASSERTION = 14,           // assert(...) does not hold
    MSL_DIVISION_BY_ZERO = 15,    // warning: of integers, or of the least one by -1; unspecified in Metal
};

enum MslCounter {
    MSL_COUNT_THREADGROUPS = 0,
    MSL_COUNT_PRODUCTS = 1,            // 8x8x8 multiply-accumulates, counted once a simdgroup
    MSL_COUNT_COLLECTIVES = 2,         // simd_ and quad_ operations that are no shuffles, once a simdgroup
    MSL_COUNT_DIVERGENT = 3,           // of products, collectives and shuffles: by a part of the simdgroup
    MSL_COUNT_BARRIERS = 4,            // threadgroup_barrier, once a threadgroup
    MSL_COUNT_SIMDGROUP_BARRIERS = 5,  // once a simdgroup
    MSL_COUNT_ATOMICS = 6,             // once a thread
    MSL_COUNT_DEVICE_READ = 7,         // bytes; these four in check mode only
    MSL_COUNT_DEVICE_WRITTEN = 8,
    MSL_COUNT_THREADGROUP_READ = 9,
    MSL_COUNT_THREADGROUP_WRITTEN = 10,
    MSL_COUNT_SHUFFLES = 11,  // once a simdgroup
    MSL_COUNT_EXP2 = 12,      // calls of exp2, once a thread and element
    MSL_COUNTERS = 16,
};

// One finding. `pc` and `other_pc` are addresses in the module just after the access or call, 0 if unknown; subtract 1
// and ask `addr2line -i`: the first frame outside the shim is the user's line. `line` is the line given by the shim for
// barriers and lane operations, 0 for plain accesses. Thread numbers are linear in the threadgroup; -1: no such party.
struct MslReport {
    uint32_t kind, severity;
    uint64_t pc, other_pc;
    int32_t line, other_line;
    int32_t thread, other_thread;
    int64_t threadgroup, other_threadgroup;
    uint64_t address;  // of the access in the process, 0 if it is not about one
    int64_t offset;    // bytes from the start of the buffer or array
    int32_t buffer;    // buffer index (regions' order as given in the launch), -1: threadgroup memory or none
    uint32_t repeats;  // further findings of the same kind at the same pc
    char name[40];     // threadgroup array, or ""
    char message[MSL_MESSAGE_BYTES];
};

// What a kernel thread can see about itself. Positions are x, y, z.
struct MslThread {
    uint32_t tid_grid[3], tid_tg[3], tg_grid[3];
    uint32_t tpg[3];   // threadgroups per grid
    uint32_t tpt[3];   // threads in this threadgroup; smaller for the last one of an uneven grid
    uint32_t grid[3];  // threads per grid
    uint32_t index_tg, lane, sg, nsg;
    uint32_t matrix_row, matrix_column;  // of this lane's two elements in an 8x8 simdgroup_matrix
    uint32_t tpt_dispatch[3];            // threads per threadgroup as dispatched
};

struct MslArgs {
    void* buf[MSL_MAX_BUFFERS];
    void* tg[MSL_MAX_DYNAMIC_ARRAYS];
};

typedef void (*MslEntry)(const MslArgs*, const MslThread*);

struct MslLaunch {
    // in
    MslEntry entry;
    uint32_t grid[3], group[3];
    void* buf[MSL_MAX_BUFFERS];
    uint32_t nworkers, order, seed;
    uint32_t check;          // 1: the module was built with -fsanitize=thread and its accesses are checked
    uint32_t poison;         // 1: threadgroup memory starts as 0xFF bytes (NaN) in every threadgroup
    uint32_t inactive_fill;  // byte that a shuffle reads from a lane that takes no part (undefined in Metal): 0 or 0xFF
    uint32_t tg_limit;       // bytes of threadgroup memory allowed
    uint32_t stack_kb;       // of each thread's private stack
    uint32_t dyn_tg[MSL_MAX_DYNAMIC_ARRAYS];  // bytes of `[[threadgroup(n)]]` arguments
    // in, check mode: the memory that the kernel may touch, and the module's own range
    uint32_t nregions;
    uint64_t reg_lo[MSL_MAX_REGIONS], reg_hi[MSL_MAX_REGIONS];
    uint32_t reg_gran[MSL_MAX_REGIONS];  // bytes of one element: the smallest unit that threads share without a race
    uint32_t reg_rw[MSL_MAX_REGIONS];    // 1: writable
    int32_t reg_index[MSL_MAX_REGIONS];  // buffer index shown in reports
    uint32_t guard;                      // bytes on both sides of each that belong to nobody
    uint64_t mod_lo, mod_hi;
    // out
    uint32_t nreports;  // found in all; the first MSL_MAX_REPORTS distinct ones are stored
    uint32_t nstored;
    uint32_t nerrors;  // of all found, how many have severity ERROR
    uint32_t tg_used;  // bytes of threadgroup memory
    uint64_t counters[MSL_COUNTERS];
    MslReport reports[MSL_MAX_REPORTS];
};

// Two neighbouring elements of a simdgroup_matrix, as a lane holds them.
struct MslPair {
    float x, y;
};

// A lane operation: executed once for all lanes in `mask`, each having left a pointer to its operands.
typedef void (*MslOpFn)(void* const* operands, uint32_t mask);

extern "C" {
// Called by the Python side.
int msl_dispatch(MslLaunch* launch);  // returns the number of reports
size_t msl_launch_size();
size_t msl_report_size();
int msl_module_range(void* symbol, uint64_t* low, uint64_t* high);  // 0, or 1 if the symbol is in no module

// Called by the shim, on a thread of a kernel.
extern __thread const MslThread* msl_thread __attribute__((tls_model("initial-exec")));
void msl_collective(MslOpFn operation, void* operands, int line);
MslPair msl_product(MslPair a, MslPair b, MslPair c, int line);
void msl_tg_barrier(uint32_t flags, int line);
void msl_sg_barrier(uint32_t flags, int line);
// `granule`: bytes of the smallest element of the array; threads share nothing smaller without a race.
void* msl_tg_alloc(const void* key, size_t size, const char* name, int line, size_t granule);
uint32_t msl_inactive_fill(int lane);  // the byte of a value that is read from a lane that takes no part
void msl_count_shuffle();
void msl_assertion_failed(const char* condition, int line);
void msl_stack_smashed(void* pc);
void msl_index_outside(long long index, int count);
extern __thread uint64_t msl_exp2_calls __attribute__((tls_model("initial-exec")));
uint32_t msl_atomic_rmw32(void* p, int op, uint32_t value);  // op: MslAtomic
uint64_t msl_atomic_rmw64(void* p, int op, uint64_t value);
int msl_atomic_cas32(void* p, void* expected, uint32_t value);
}

enum MslAtomic {
    MSL_ATOMIC_ADD = 0,
    MSL_ATOMIC_SUB = 1,
    MSL_ATOMIC_AND = 2,
    MSL_ATOMIC_OR = 3,
    MSL_ATOMIC_XOR = 4,
    MSL_ATOMIC_MIN_UNSIGNED = 5,
    MSL_ATOMIC_MAX_UNSIGNED = 6,
    MSL_ATOMIC_MIN_SIGNED = 7,
    MSL_ATOMIC_MAX_SIGNED = 8,
    MSL_ATOMIC_EXCHANGE = 9,
    MSL_ATOMIC_ADD_FLOAT = 10,
    MSL_ATOMIC_LOAD = 11,
    MSL_ATOMIC_STORE = 12,
    MSL_ATOMIC_SUB_FLOAT = 13,
};

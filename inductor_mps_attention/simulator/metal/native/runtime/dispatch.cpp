// The entry points that Python calls.
#include <dlfcn.h>
#include <link.h>

#include <mutex>

#include "checks.h"
#include "pool.h"
#include "signals.h"
#include "worker.h"

namespace runtime {
namespace {

constexpr uint64_t THREADS_WORTH_A_HELPER = 4096;  // below, waking another OS thread costs more than it saves

struct Job {
    MslLaunch* launch;
    Grid grid;
    std::atomic<uint64_t> next{0};
};

void work(void* argument) {
    Job* job = static_cast<Job*>(argument);
    run_threadgroups(job->launch, job->grid, &job->next);
}

unsigned helpers_for(const MslLaunch* launch, const Grid& grid) {
    if (launch->check || launch->nworkers <= 1) return 0;
    uint64_t useful = grid.total - 1;
    if (launch->order == MSL_FIBERLESS) {
        uint64_t threads = static_cast<uint64_t>(launch->grid[0]) * launch->grid[1] * launch->grid[2];
        uint64_t shares = threads / THREADS_WORTH_A_HELPER;
        if (shares < useful) useful = shares;
    }
    uint64_t wanted = launch->nworkers - 1;
    return static_cast<unsigned>(wanted < useful ? wanted : useful);
}

std::mutex check_lock;  // the shadows of check mode serve one launch at a time

struct ModuleRange {
    uintptr_t base, low, high;
};

int widen_if_found(dl_phdr_info* info, size_t, void* argument) {
    ModuleRange* range = static_cast<ModuleRange*>(argument);
    uintptr_t low = ~uintptr_t(0), high = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = start + info->dlpi_phdr[i].p_memsz;
        if (start < low) low = start;
        if (end > high) high = end;
    }
    if (range->base < low || range->base >= high) return 0;
    range->low = low;
    range->high = high;
    return 1;
}

}  // namespace
}  // namespace runtime

using namespace runtime;

extern "C" int msl_dispatch(MslLaunch* launch) {
    Job job;
    job.launch = launch;
    job.grid = grid_of(launch);
    if (job.grid.total == 0) return 0;
    SignalGuard guard_of_kernels;
    if (launch->check) {
        std::lock_guard<std::mutex> guard(check_lock);
        start_checks(launch);
        work(&job);
        finish_checks(launch);
    } else {
        run_with_helpers(helpers_for(launch, job.grid), &work, &job);
    }
    return static_cast<int>(launch->nreports);
}

extern "C" size_t msl_launch_size() { return sizeof(MslLaunch); }
extern "C" size_t msl_report_size() { return sizeof(MslReport); }

extern "C" int msl_module_range(void* symbol, uint64_t* low, uint64_t* high) {
    Dl_info info;
    if (!dladdr(symbol, &info)) return 1;
    ModuleRange range{reinterpret_cast<uintptr_t>(info.dli_fbase), 0, 0};
    if (!dl_iterate_phdr(&widen_if_found, &range)) return 1;
    *low = range.low;
    *high = range.high;
    return 0;
}

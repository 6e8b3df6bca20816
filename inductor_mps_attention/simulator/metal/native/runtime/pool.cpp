#include "pool.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace runtime {
namespace {

struct Pool {
    std::mutex in_use;  // held for a whole launch
    std::mutex lock;    // guards what follows
    std::condition_variable wake, finished;
    unsigned threads = 0;
    unsigned wanted = 0;   // helpers that may still join the launch
    unsigned working = 0;  // helpers in `work`
    void (*work)(void*) = nullptr;
    void* argument = nullptr;

    [[noreturn]] void serve() {
        std::unique_lock<std::mutex> guard(lock);
        for (;;) {
            wake.wait(guard, [this] { return wanted > 0; });
            --wanted;
            ++working;
            guard.unlock();
            work(argument);
            guard.lock();
            if (--working == 0) finished.notify_all();
        }
    }
};

Pool* pool = nullptr;
std::mutex pool_lock;

// Threads do not survive a fork, and locks may be held by threads that are gone: the child gets a new pool.
void forget_pool() {
    pool = nullptr;
    new (&pool_lock) std::mutex;
}

Pool& the_pool() {
    std::lock_guard<std::mutex> guard(pool_lock);
    if (!pool) {
        static bool registered = pthread_atfork(nullptr, nullptr, &forget_pool) == 0;
        (void)registered;
        pool = new Pool;
    }
    return *pool;
}

}  // namespace

void run_with_helpers(unsigned helpers, void (*work)(void*), void* argument) {
    if (helpers == 0) return work(argument);
    Pool& shared = the_pool();
    std::unique_lock<std::mutex> launch(shared.in_use, std::try_to_lock);
    if (!launch.owns_lock()) return work(argument);
    {
        std::lock_guard<std::mutex> guard(shared.lock);
        for (; shared.threads < helpers; ++shared.threads) std::thread([&shared] { shared.serve(); }).detach();
        shared.work = work;
        shared.argument = argument;
        shared.wanted = helpers;
    }
    shared.wake.notify_all();
    work(argument);
    std::unique_lock<std::mutex> guard(shared.lock);
    shared.wanted = 0;  // whoever has not started yet finds nothing left to do
    shared.finished.wait(guard, [&shared] { return shared.working == 0; });
}

}  // namespace runtime

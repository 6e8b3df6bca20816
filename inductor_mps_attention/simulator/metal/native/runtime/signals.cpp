#include "signals.h"

#include <string.h>
#include <ucontext.h>

#include <mutex>

#include "division.h"
#include "report.h"
#include "scheduler.h"

namespace runtime {
namespace {

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
constexpr int COUNT = sizeof SIGNALS / sizeof *SIGNALS;

std::mutex guards_lock;
int guards = 0;
struct sigaction before[COUNT];

void* program_counter(const ucontext_t* context) {
#if defined(__x86_64__)
    return reinterpret_cast<void*>(context->uc_mcontext.gregs[REG_RIP]);
#else
    return reinterpret_cast<void*>(context->uc_mcontext.pc);
#endif
}

// As if this handler did not exist.
void pass_on(int number, siginfo_t* information, void* context) {
    int index = 0;
    while (SIGNALS[index] != number) ++index;
    const struct sigaction& action = before[index];
    if (action.sa_flags & SA_SIGINFO) return action.sa_sigaction(number, information, context);
    if (action.sa_handler == SIG_IGN) return;
    if (action.sa_handler != SIG_DFL) return action.sa_handler(number);
    sigaction(number, &action, nullptr);  // the instruction is executed again, and the process ends
}

void handle(int number, siginfo_t* information, void* opaque) {
    Threadgroup* group = current;
    ucontext_t* context = static_cast<ucontext_t*>(opaque);
    bool sent = information->si_code <= 0;  // by a process, not by an instruction
    if (!group || !msl_thread || sent) return pass_on(number, information, opaque);
    // One past the instruction, as of a call: reports subtract 1.
    void* pc = static_cast<char*>(program_counter(context)) + 1;
    if (number == SIGFPE && finish_division(context)) {
        if (group->check) report_division(group, pc);
        return;
    }
    const Lane* lane = running_lane();
    const char* address = static_cast<const char*>(information->si_addr);
    bool below_stack = number == SIGSEGV && group->order != MSL_FIBERLESS && address < lane->stack_low &&
                       address >= lane->stack_low - STACK_GUARD_BYTES;
    if (below_stack)
        report_stack_overflow(group, pc);
    else
        report_exception(group, strsignal(number), address, pc);
    abandon(group);
}

}  // namespace

SignalGuard::SignalGuard() {
    std::lock_guard<std::mutex> guard(guards_lock);
    if (guards++) return;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = &handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;  // the handler does not return from some
    for (int i = 0; i < COUNT; ++i) sigaction(SIGNALS[i], &action, &before[i]);
}

SignalGuard::~SignalGuard() {
    std::lock_guard<std::mutex> guard(guards_lock);
    if (--guards) return;
    for (int i = 0; i < COUNT; ++i) sigaction(SIGNALS[i], &before[i], nullptr);
}

SignalStack::SignalStack() : memory_(new char[BYTES]) {
    stack_t own;
    memset(&own, 0, sizeof own);
    own.ss_sp = memory_;
    own.ss_size = BYTES;
    sigaltstack(&own, &before_);
}

SignalStack::~SignalStack() {
    sigaltstack(&before_, nullptr);
    delete[] memory_;
}

}  // namespace runtime

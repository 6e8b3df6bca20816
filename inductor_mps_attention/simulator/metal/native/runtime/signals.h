// Processor exceptions in a kernel's code: the launch reports them, and the process goes on.
#pragma once
#include <signal.h>

namespace runtime {

// While one exists, exceptions of kernels are handled. Others go where they went before.
class SignalGuard {
  public:
    SignalGuard();
    ~SignalGuard();
    SignalGuard(const SignalGuard&) = delete;
};

// The stack that handlers run on, of this OS thread: a kernel's own may be what is broken.
class SignalStack {
  public:
    SignalStack();
    ~SignalStack();
    SignalStack(const SignalStack&) = delete;

  private:
    static constexpr size_t BYTES = 64 << 10;
    stack_t before_;
    char* memory_;
};

}  // namespace runtime

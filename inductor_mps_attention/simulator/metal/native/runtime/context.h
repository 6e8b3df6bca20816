// Switching between the private stacks of kernel threads ("fibers"). One fiber is one Metal thread.
//
// The switch is inline: the compiler keeps across it only what is alive, and saves callee-saved registers once, in the
// prologue of the runtime function that a kernel called. It ends in an indirect jump whose target is nearly always its
// own end, and leaves calls and returns of all fibers balanced, so that the processor predicts both.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace runtime {

// Where a suspended fiber goes on. The assembly knows the offsets 0, 8 and 16.
struct Context {
    void* stack_pointer;
    void* resume;
    void* frame_pointer;
};

// A context that starts `start` on a fresh stack. `start` must never return.
inline void new_context(Context* context, char* stack_top, void (*start)()) {
    uintptr_t top = reinterpret_cast<uintptr_t>(stack_top) & ~uintptr_t(63);
#if defined(__x86_64__)
    top -= 64;
    *reinterpret_cast<void**>(top + 56) = nullptr;  // in place of the return address that a call leaves
    top += 56;
#endif
    context->stack_pointer = reinterpret_cast<void*>(top);
    context->resume = reinterpret_cast<void*>(start);
    context->frame_pointer = nullptr;
}

#if defined(__x86_64__)

#if defined(__AVX512F__)
#define MSL_WIDE_REGISTERS                                                                                        \
    , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", \
        "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#else
#define MSL_WIDE_REGISTERS
#endif

// Suspends the running fiber in `from` and continues with `to`.
inline __attribute__((always_inline)) void switch_context(Context* from, Context* to) {
    asm volatile(
        "leaq 1f(%%rip), %%rax\n\t"
        "movq %%rsp, (%%rdi)\n\t"
        "movq %%rax, 8(%%rdi)\n\t"
        "movq %%rbp, 16(%%rdi)\n\t"
        "movq (%%rsi), %%rsp\n\t"
        "jmpq *8(%%rsi)\n"
        "1:\n\t"
        "movq 16(%%rsi), %%rbp\n\t"  // whoever comes here gave this fiber's context in %rsi
        : "+D"(from), "+S"(to)
        :
        : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2",
          "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
          "xmm15" MSL_WIDE_REGISTERS, "cc", "memory");
}
#undef MSL_WIDE_REGISTERS

#elif defined(__aarch64__)

inline __attribute__((always_inline)) void switch_context(Context* from_context, Context* to_context) {
    register Context* from asm("x0") = from_context;
    register Context* to asm("x1") = to_context;
    asm volatile(
        "adr x2, 1f\n\t"
        "mov x3, sp\n\t"
        "stp x3, x2, [x0]\n\t"
        "str x29, [x0, #16]\n\t"
        "ldp x3, x2, [x1]\n\t"
        "mov sp, x3\n\t"
        "br x2\n"
        "1:\n\t"
        "ldr x29, [x1, #16]\n\t"
        : "+r"(from), "+r"(to)
        :
        : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x19",
          "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "v0", "v1", "v2", "v3", "v4", "v5",
          "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21",
          "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc", "memory");
}

#else
#error "the Metal runtime switches stacks on x86-64 and aarch64 only"
#endif

}  // namespace runtime

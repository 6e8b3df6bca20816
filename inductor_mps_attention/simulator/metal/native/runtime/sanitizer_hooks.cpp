// The functions that a compiler calls from code built with -fsanitize=thread. The module is linked without the
// sanitizer's own library, so that these, which know what a Metal thread is, take its place.
#include "checks.h"

using runtime::check_access;

#define CALLER __builtin_return_address(0)

#define ACCESS_HOOKS(prefix, size)                                                             \
    void __tsan_##prefix##read##size(void* p) { check_access(p, size, false, false, CALLER); } \
    void __tsan_##prefix##write##size(void* p) { check_access(p, size, true, false, CALLER); } \
    void __tsan_##prefix##read_write##size(void* p) {                                          \
        check_access(p, size, false, false, CALLER);                                           \
        check_access(p, size, true, false, CALLER);                                            \
    }

#define HOOKS_OF_SIZE(size)        \
    ACCESS_HOOKS(, size)           \
    ACCESS_HOOKS(unaligned_, size) \
    ACCESS_HOOKS(volatile_, size)  \
    ACCESS_HOOKS(unaligned_volatile_, size)

extern "C" {
HOOKS_OF_SIZE(1)
HOOKS_OF_SIZE(2)
HOOKS_OF_SIZE(4)
HOOKS_OF_SIZE(8)
HOOKS_OF_SIZE(16)

void __tsan_read_range(void* p, size_t size) { check_access(p, size, false, false, CALLER); }
void __tsan_write_range(void* p, size_t size) { check_access(p, size, true, false, CALLER); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_init() {}
void __tsan_func_exit() {}

// Close to the end of the private stack, a further call may run into the guard page.
void __tsan_func_entry(void* caller) {
    runtime::Threadgroup* group = runtime::current;
    if (!group || !msl_thread) return;
    constexpr size_t reserve = 2048;
    char* frame = static_cast<char*>(__builtin_frame_address(0));
    const runtime::Lane* lane = runtime::running_lane();
    if (frame >= lane->stack_low && frame < lane->stack_low + reserve) report_stack_overflow(group, caller);
}

// clang turns copies of structs into these.
void* __tsan_memcpy(void* to, const void* from, size_t size) {
    check_access(from, size, false, false, CALLER);
    check_access(to, size, true, false, CALLER);
    return __builtin_memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, size_t size) {
    check_access(from, size, false, false, CALLER);
    check_access(to, size, true, false, CALLER);
    return __builtin_memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, size_t size) {
    check_access(to, size, true, false, CALLER);
    return __builtin_memset(to, value, size);
}
}

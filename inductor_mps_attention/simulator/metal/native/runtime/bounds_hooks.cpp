// What a compiler calls from code built with -fsanitize=bounds,object-size where an access leaves a private array. It
// calls before the access, which must not happen: it would overwrite the thread's stack. As with the hooks of
// accesses, the sanitizer's own library is never linked.
#include <stdio.h>

#include "report.h"
#include "scheduler.h"
#include "shadow.h"

namespace {

using namespace runtime;

// The compiler's descriptions of a check, by the layout that all compilers with this sanitizer share.
struct SourceLocation {
    const char* file;
    uint32_t line, column;
};
struct TypeDescriptor {
    uint16_t kind;         // 0: an integer
    uint16_t information;  // of an integer: bit 0 says that it is signed, the rest is the logarithm of its bits
    char name[1];
};
struct IndexOutOfBounds {
    SourceLocation location;
    const TypeDescriptor* array;
    const TypeDescriptor* index;
};
struct PointerMismatch {
    SourceLocation location;
    const TypeDescriptor* type;
    unsigned char alignment_logarithm, kind;
};

// The value of an index as the compiler hands it over: the bits of its type, in a word.
long long index_value(const TypeDescriptor* type, uintptr_t index) {
    unsigned bits = 1u << (type->information >> 1);
    if (type->kind != 0 || !(type->information & 1) || bits >= 64) return static_cast<long long>(index);
    return static_cast<long long>(index << (64 - bits)) >> (64 - bits);
}

[[noreturn]] void refuse_index(long long index, const char* what, void* pc) {
    settle_pending_write(current);
    report_index(current, index, what, pc);
    abandon(current);
}

}  // namespace

extern "C" {
void __ubsan_handle_out_of_bounds(IndexOutOfBounds* check, uintptr_t index) {
    if (!current || !msl_thread) return;
    refuse_index(index_value(check->index, index), check->array->name, __builtin_return_address(0));
}

void __ubsan_handle_type_mismatch_v1(PointerMismatch* check, uintptr_t) {
    if (!current || !msl_thread) return;
    settle_pending_write(current);
    report_private_pointer(current, check->type->name, __builtin_return_address(0));
    abandon(current);
}

// Called by the shim for vectors, matrices and metal::array.
void msl_index_outside(long long index, int count) {
    char what[40];
    snprintf(what, sizeof what, "%d elements", count);
    refuse_index(index, what, __builtin_return_address(0));
}

// Called by the shim in place of a return to a place that is no more known.
void msl_stack_smashed(void* pc) {
    report_smashed_stack(current, pc);
    abandon(current);
}
}

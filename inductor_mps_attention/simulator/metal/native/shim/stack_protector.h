// Where a function built with -fstack-protector goes that has overwritten what lies behind its private arrays.
#pragma once
#include "config.h"

#if MSL_CHECK
// Hidden: each module has its own, so that the C library's, which ends the process, is not found.
extern "C" __attribute__((visibility("hidden"), noinline, used)) void __stack_chk_fail() {
    msl_stack_smashed(__builtin_return_address(0));
}
#endif

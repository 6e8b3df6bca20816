// Check mode: every load and store of a module built with -fsanitize=thread comes here.
#pragma once
#include "report.h"

namespace runtime {

// Judges an access of the running thread. Returns false if it must not be done (atomics outside every buffer).
bool check_access(const void* address, size_t size, bool write, bool atomic, void* pc);

// Prepares and drops the state that checks keep for a launch.
void start_checks(MslLaunch* launch);
void finish_checks(MslLaunch* launch);

}  // namespace runtime

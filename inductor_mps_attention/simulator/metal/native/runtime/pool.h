// OS threads that help with a launch. They live as long as the process; a forked child starts new ones when needed.
#pragma once

namespace runtime {

// Calls work(argument) on the calling thread and on up to `helpers` others, and returns when all calls have. If
// the helpers are busy with another launch, the calling thread works alone.
void run_with_helpers(unsigned helpers, void (*work)(void*), void* argument);

}  // namespace runtime

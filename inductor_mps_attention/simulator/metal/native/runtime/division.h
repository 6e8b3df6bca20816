// Integer division by zero, and of the least integer by -1: no exception in Metal, whose results are unspecified.
#pragma once
#include <ucontext.h>

namespace runtime {

// Finishes the division that a processor refused: by zero it gives 0 and the dividend as remainder, as aarch64 does
// without an exception; the least integer by -1 gives itself. False if the instruction is no division.
bool finish_division(ucontext_t* context);

}  // namespace runtime

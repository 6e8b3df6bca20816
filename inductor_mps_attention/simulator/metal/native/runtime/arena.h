// Threadgroup memory of the threadgroup that a worker runs.
#pragma once
#include "state.h"

namespace runtime {

// Places an array, checks the sum of all against the launch's limit. `granule`: bytes of one element.
void* place_array(Threadgroup* group, const void* key, size_t size, size_t granule, const char* name, int line,
                  void* pc);

// Between two threadgroups: the arrays stay where they are, their contents are unknown again.
void reset_arrays(Threadgroup* group);

}  // namespace runtime

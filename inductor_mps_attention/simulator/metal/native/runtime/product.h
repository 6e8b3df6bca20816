// The 8x8x8 matrix product of a simdgroup. Each lane leaves its two elements of A, B and C in the simdgroup's row-major
// tiles; the last lane to come multiplies; each lane picks up its two elements of D.
#pragma once
#include "state.h"

namespace runtime {

// A lane operation; its operands are the tiles of the simdgroup that `operands` belongs to.
void run_product(void* const* operands, uint32_t lanes);

}  // namespace runtime

// The 8x8x8 matrix product of a simdgroup. Each lane leaves its two elements of A, B and C in the simdgroup's row-major
// tiles; the last lane to come multiplies; each lane picks up its two elements of D.
#pragma once
#include "report.h"

namespace runtime {

// Whether an element is the fill of private memory: of float, of bfloat or half as they are widened to float.
inline bool is_uninitialised(MslPair pair) {
    constexpr uint32_t BFLOAT_FILL = 0xFEFE0000, HALF_FILL = 0xFFDFC000;
    uint32_t bits[2];
    __builtin_memcpy(bits, &pair, sizeof bits);
    for (uint32_t element : bits)
        if (element == PRIVATE_FILL || element == BFLOAT_FILL || element == HALF_FILL) return true;
    return false;
}

// A lane operation; its operands are the tiles of the simdgroup that `operands` belongs to.
void run_product(void* const* operands, uint32_t lanes);

}  // namespace runtime

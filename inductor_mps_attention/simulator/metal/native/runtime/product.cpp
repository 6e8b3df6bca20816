#include "product.h"

#include <math.h>

#include "state.h"

namespace runtime {
namespace {

typedef float Row __attribute__((vector_size(32), aligned(32)));

#define PRODUCT_BODY                                                              \
    const Row* b = reinterpret_cast<const Row*>(simdgroup->tiles[1]);             \
    const Row* c = reinterpret_cast<const Row*>(simdgroup->tiles[2]);             \
    Row* d = reinterpret_cast<Row*>(simdgroup->tiles[3]);                         \
    for (int i = 0; i < 8; ++i) {                                                 \
        Row sum = c[i];                                                           \
        for (int k = 0; k < 8; ++k) sum += b[k] * simdgroup->tiles[0][i * 8 + k]; \
        d[i] = sum;                                                               \
    }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void multiply_avx2(Simdgroup* simdgroup) { PRODUCT_BODY }
#endif
void multiply_portable(Simdgroup* simdgroup) { PRODUCT_BODY }

#undef PRODUCT_BODY

typedef void (*Multiply)(Simdgroup*);

Multiply choose_multiply() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &multiply_avx2;
#endif
    return &multiply_portable;
}

const Multiply multiply = choose_multiply();

// Elements that lanes outside the product hold are unknown: NaN, so that a result that depends on one shows it.
void poison_absent(Simdgroup* simdgroup, uint32_t lanes) {
    for (int lane = 0; lane < MSL_LANES; ++lane) {
        if (lanes >> lane & 1) continue;
        uint32_t quad = lane / 4, row = (quad & 4) + lane / 2 % 4, column = (quad & 2) * 2 + lane % 2 * 2;
        for (uint32_t element = row * 8 + column; element < row * 8 + column + 2; ++element)
            simdgroup->tiles[0][element] = simdgroup->tiles[1][element] = simdgroup->tiles[2][element] = NAN;
    }
}

}  // namespace

void run_product(void* const* operands, uint32_t lanes) {
    const char* address = reinterpret_cast<const char*>(operands) - offsetof(Simdgroup, operands);
    Simdgroup* simdgroup = reinterpret_cast<Simdgroup*>(const_cast<char*>(address));
    if (lanes != ALL_LANES) poison_absent(simdgroup, lanes);
    multiply(simdgroup);
}

}  // namespace runtime

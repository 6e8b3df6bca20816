// The atomic operations that atomic.h of the shim is made of. `operation` is a constant wherever they are called.
#pragma once

enum MslAtomic {
    MSL_ATOMIC_ADD,
    MSL_ATOMIC_SUB,
    MSL_ATOMIC_AND,
    MSL_ATOMIC_OR,
    MSL_ATOMIC_XOR,
    MSL_ATOMIC_MIN_UNSIGNED,
    MSL_ATOMIC_MAX_UNSIGNED,
    MSL_ATOMIC_MIN_SIGNED,
    MSL_ATOMIC_MAX_SIGNED,
    MSL_ATOMIC_EXCHANGE,
    MSL_ATOMIC_ADD_FLOAT,
    MSL_ATOMIC_LOAD,
    MSL_ATOMIC_STORE,
    MSL_ATOMIC_SUB_FLOAT,
};

MSL_INLINE uint32_t msl_atomic_rmw32(void* address, int operation, uint32_t value) {
    uint32_t* word = static_cast<uint32_t*>(address);
    int* number = static_cast<int*>(address);
    float* real = static_cast<float*>(address);
    switch (operation) {
        case MSL_ATOMIC_ADD: return atomicAdd(word, value);
        case MSL_ATOMIC_SUB: return atomicAdd(word, 0u - value);
        case MSL_ATOMIC_AND: return atomicAnd(word, value);
        case MSL_ATOMIC_OR: return atomicOr(word, value);
        case MSL_ATOMIC_XOR: return atomicXor(word, value);
        case MSL_ATOMIC_MIN_UNSIGNED: return atomicMin(word, value);
        case MSL_ATOMIC_MAX_UNSIGNED: return atomicMax(word, value);
        case MSL_ATOMIC_MIN_SIGNED: return uint32_t(atomicMin(number, int(value)));
        case MSL_ATOMIC_MAX_SIGNED: return uint32_t(atomicMax(number, int(value)));
        case MSL_ATOMIC_EXCHANGE: return atomicExch(word, value);
        case MSL_ATOMIC_ADD_FLOAT: return __float_as_uint(atomicAdd(real, __uint_as_float(value)));
        case MSL_ATOMIC_SUB_FLOAT: return __float_as_uint(atomicAdd(real, -__uint_as_float(value)));
        case MSL_ATOMIC_LOAD: return *static_cast<volatile uint32_t*>(address);
        default: return *static_cast<volatile uint32_t*>(address) = value;
    }
}
MSL_INLINE uint64_t msl_atomic_rmw64(void* address, int operation, uint64_t value) {
    unsigned long long* word = static_cast<unsigned long long*>(address);
    return operation == MSL_ATOMIC_MIN_UNSIGNED ? atomicMin(word, value) : atomicMax(word, value);
}
MSL_INLINE bool msl_atomic_cas32(void* address, void* expected, uint32_t value) {
    uint32_t wanted = *static_cast<uint32_t*>(expected);
    uint32_t seen = atomicCAS(static_cast<uint32_t*>(address), wanted, value);
    *static_cast<uint32_t*>(expected) = seen;
    return seen == wanted;
}

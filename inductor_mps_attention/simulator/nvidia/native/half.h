// half, a class: NVRTC has no such type without CUDA's headers. Arithmetic is that of float, rounded once, which for
// + - * / is the correctly rounded result. As in Metal, half with an integer is half, and half with float is float.
#pragma once

MSL_INLINE uint16_t msl_hardware_half(float value) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
MSL_INLINE float msl_hardware_float(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
MSL_INLINE uint16_t msl_hardware_bfloat(float value) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// The same at compile time: round to nearest, ties to even.
MSL_INLINE constexpr uint16_t msl_rounded_to_half(float value) {
    uint32_t wide = __builtin_bit_cast(uint32_t, value);
    uint32_t sign = wide >> 16 & 0x8000u, magnitude = wide & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);
    if (magnitude >= 0x38800000u)
        return uint16_t(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
    if (magnitude < 0x33000000u) return uint16_t(sign);
    uint32_t shift = 126u - (magnitude >> 23), digits = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t rest = digits & ((1u << shift) - 1u), middle = 1u << (shift - 1u), kept = digits >> shift;
    return uint16_t(sign | (kept + (rest > middle || (rest == middle && (kept & 1u)))));
}
MSL_INLINE constexpr float msl_widened_half(uint16_t bits) {
    uint32_t sign = uint32_t(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, digits = bits & 0x3ffu;
    if (exponent == 0) {
        float magnitude = float(digits) * 5.9604644775390625e-8f;
        return sign ? -magnitude : magnitude;
    }
    uint32_t wide = exponent == 31 ? 0x7f800000u | digits << 13 : (exponent + 112u) << 23 | digits << 13;
    return __builtin_bit_cast(float, sign | wide);
}

struct bfloat;

struct half {
    uint16_t bits;

    half() = default;
#define MSL_HALF_FROM(T) \
    MSL_INLINE constexpr half(T value) : bits(rounded(static_cast<float>(value))) {}
    MSL_HALF_FROM(float)
    MSL_HALF_FROM(double)
    MSL_HALF_FROM(bool)
    MSL_HALF_FROM(char)
    MSL_HALF_FROM(signed char)
    MSL_HALF_FROM(unsigned char)
    MSL_HALF_FROM(short)
    MSL_HALF_FROM(unsigned short)
    MSL_HALF_FROM(int)
    MSL_HALF_FROM(unsigned int)
    MSL_HALF_FROM(long)
    MSL_HALF_FROM(unsigned long)
    MSL_INLINE explicit half(bfloat value);
#undef MSL_HALF_FROM
    MSL_INLINE constexpr operator float() const {
        return __builtin_is_constant_evaluated() ? msl_widened_half(bits) : msl_hardware_float(bits);
    }

    MSL_INLINE half& operator+=(float other) { return *this = half(float(*this) + other); }
    MSL_INLINE half& operator-=(float other) { return *this = half(float(*this) - other); }
    MSL_INLINE half& operator*=(float other) { return *this = half(float(*this) * other); }
    MSL_INLINE half& operator/=(float other) { return *this = half(float(*this) / other); }

    static MSL_INLINE constexpr uint16_t rounded(float value) {
        return __builtin_is_constant_evaluated() ? msl_rounded_to_half(value) : msl_hardware_half(value);
    }
};

// Exact types, so that bfloat and float operands go to the operators of float.
#define MSL_HALF_INTEGER_OPERATOR(op, T)                                                                 \
    MSL_INLINE constexpr half operator op(half a, T b) { return half(float(a) op static_cast<float>(b)); } \
    MSL_INLINE constexpr half operator op(T a, half b) { return half(static_cast<float>(a) op float(b)); }
#define MSL_HALF_OPERATOR(op)                                                                \
    MSL_INLINE constexpr half operator op(half a, half b) { return half(float(a) op float(b)); } \
    MSL_HALF_INTEGER_OPERATOR(op, bool)                                                      \
    MSL_HALF_INTEGER_OPERATOR(op, short)                                                     \
    MSL_HALF_INTEGER_OPERATOR(op, unsigned short)                                            \
    MSL_HALF_INTEGER_OPERATOR(op, int)                                                       \
    MSL_HALF_INTEGER_OPERATOR(op, unsigned int)                                              \
    MSL_HALF_INTEGER_OPERATOR(op, long)                                                      \
    MSL_HALF_INTEGER_OPERATOR(op, unsigned long)                                             \
    MSL_INLINE constexpr float operator op(half a, float b) { return float(a) op b; }        \
    MSL_INLINE constexpr float operator op(float a, half b) { return a op float(b); }
MSL_HALF_OPERATOR(+)
MSL_HALF_OPERATOR(-)
MSL_HALF_OPERATOR(*)
MSL_HALF_OPERATOR(/)
#undef MSL_HALF_OPERATOR
#undef MSL_HALF_INTEGER_OPERATOR

MSL_INLINE constexpr half operator-(half a) {
    half negated = a;
    negated.bits ^= 0x8000u;
    return negated;
}

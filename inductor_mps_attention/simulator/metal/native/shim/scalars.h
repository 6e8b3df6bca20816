// as_type and bfloat. half is the compiler's _Float16; bfloat is a class, as compilers in use lack it.
#pragma once
#include "type_traits.h"

// The bits of one type as another of the same size.
template <class To, class From>
MSL_INLINE To as_type(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "as_type: the types must have the same size");
    static_assert(!metal::is_pointer_v<To> && !metal::is_pointer_v<From>, "as_type: pointers are not allowed");
    To to;
    __builtin_memcpy(static_cast<void*>(&to), static_cast<const void*>(&from), sizeof to);
    return to;
}

// Metal never converts float to bfloat silently, so the constructor is explicit; bfloat to float is silent.
struct bfloat {
    uint16_t bits;

    bfloat() = default;
    template <class T, class = metal::enable_if_t<metal::is_arithmetic_v<T> && !metal::is_same_v<T, bfloat>>>
    MSL_INLINE constexpr explicit bfloat(T value) : bits(rounded(static_cast<float>(value))) {}
    MSL_INLINE constexpr operator float() const { return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16); }

    MSL_INLINE bfloat& operator+=(bfloat other) { return *this = bfloat(float(*this) + float(other)); }
    MSL_INLINE bfloat& operator-=(bfloat other) { return *this = bfloat(float(*this) - float(other)); }
    MSL_INLINE bfloat& operator*=(bfloat other) { return *this = bfloat(float(*this) * float(other)); }
    MSL_INLINE bfloat& operator/=(bfloat other) { return *this = bfloat(float(*this) / float(other)); }

    // Round to nearest, ties to even; a NaN stays a NaN.
    static MSL_INLINE constexpr uint16_t rounded(float value) {
        uint32_t wide = __builtin_bit_cast(uint32_t, value);
        if ((wide & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(wide >> 16 | 0x40u);
        return static_cast<uint16_t>((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
    }
};

// Templates, so that they take bfloat alone and not what converts to it; bfloat with float is float arithmetic.
#define MSL_BFLOAT_OPERATOR(op)                                                 \
    template <class T, class = metal::enable_if_t<metal::is_same_v<T, bfloat>>> \
    MSL_INLINE constexpr bfloat operator op(T a, T b) {                         \
        return bfloat(float(a) op float(b));                                    \
    }
MSL_BFLOAT_OPERATOR(+)
MSL_BFLOAT_OPERATOR(-)
MSL_BFLOAT_OPERATOR(*)
MSL_BFLOAT_OPERATOR(/)
#undef MSL_BFLOAT_OPERATOR

template <class T, class = metal::enable_if_t<metal::is_same_v<T, bfloat>>>
MSL_INLINE constexpr bfloat operator-(T a) {
    return bfloat(-float(a));
}

namespace metal {
using ::as_type;
using ::bfloat;
using ::half;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::size_t;
using ::uchar;
using ::uint;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::ulong;
using ::ushort;
}  // namespace metal

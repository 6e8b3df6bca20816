// as_type and bfloat. half is an engine's own, see config.h; bfloat is a class, as compilers in use lack it.
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

// Round to nearest, ties to even; a NaN stays a NaN.
MSL_INLINE constexpr uint16_t msl_rounded_to_bfloat(float value) {
    uint32_t wide = __builtin_bit_cast(uint32_t, value);
    if ((wide & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(wide >> 16 | 0x40u);
    return static_cast<uint16_t>((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
}
#ifndef MSL_BFLOAT_BITS
#define MSL_BFLOAT_BITS(value) msl_rounded_to_bfloat(value)
#endif

// Metal converts between integers and bfloat, and bfloat to float, silently; float to bfloat never.
struct bfloat {
    uint16_t bits;

    bfloat() = default;
    template <class T, metal::enable_if_t<metal::is_integral_v<T>, int> = 0>
    MSL_INLINE constexpr bfloat(T value) : bits(MSL_BFLOAT_BITS(static_cast<float>(value))) {}
    template <class T, metal::enable_if_t<metal::is_any_of<T, float, half>, int> = 0>
    MSL_INLINE constexpr explicit bfloat(T value) : bits(MSL_BFLOAT_BITS(static_cast<float>(value))) {}
    template <class T, metal::enable_if_t<metal::is_same_v<T, float> || metal::is_integral_v<T>, int> = 0>
    MSL_INLINE constexpr operator T() const {
        return static_cast<T>(__builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16));
    }
    MSL_INLINE constexpr explicit operator half() const { return static_cast<half>(static_cast<float>(*this)); }

    MSL_INLINE bfloat& operator+=(bfloat other) { return *this = bfloat(float(*this) + float(other)); }
    MSL_INLINE bfloat& operator-=(bfloat other) { return *this = bfloat(float(*this) - float(other)); }
    MSL_INLINE bfloat& operator*=(bfloat other) { return *this = bfloat(float(*this) * float(other)); }
    MSL_INLINE bfloat& operator/=(bfloat other) { return *this = bfloat(float(*this) / float(other)); }
};

namespace metal {
namespace msl_detail {
// The type of bfloat with another type: that of the wider one, and bfloat for integers.
template <class A, class B>
using with_bfloat = enable_if_t<(is_same_v<A, bfloat> || is_same_v<B, bfloat>)&&is_arithmetic_v<A> && is_arithmetic_v<B>,
                                conditional_t<is_any_of<A, float, half> || is_any_of<B, float, half>, float, bfloat>>;
}  // namespace msl_detail
}  // namespace metal

// Templates, so that they take bfloat and numbers alone, and not what converts to them.
#define MSL_BFLOAT_OPERATOR(op)                                                             \
    template <class A, class B>                                                             \
    MSL_INLINE constexpr metal::msl_detail::with_bfloat<A, B> operator op(A a, B b) {       \
        using Result = metal::msl_detail::with_bfloat<A, B>;                                \
        return Result(static_cast<float>(a) op static_cast<float>(b));                      \
    }
#define MSL_BFLOAT_COMPARISON(op)                                                           \
    template <class A, class B, class = metal::msl_detail::with_bfloat<A, B>>               \
    MSL_INLINE constexpr bool operator op(A a, B b) {                                       \
        return static_cast<float>(a) op static_cast<float>(b);                              \
    }
MSL_BFLOAT_OPERATOR(+)
MSL_BFLOAT_OPERATOR(-)
MSL_BFLOAT_OPERATOR(*)
MSL_BFLOAT_OPERATOR(/)
MSL_BFLOAT_COMPARISON(==)
MSL_BFLOAT_COMPARISON(!=)
MSL_BFLOAT_COMPARISON(<)
MSL_BFLOAT_COMPARISON(>)
MSL_BFLOAT_COMPARISON(<=)
MSL_BFLOAT_COMPARISON(>=)
#undef MSL_BFLOAT_OPERATOR
#undef MSL_BFLOAT_COMPARISON

#define MSL_ASSIGNMENT_OF_BFLOAT(op)                                                                     \
    template <class T, class B, class = metal::enable_if_t<metal::is_same_v<B, bfloat>>,                 \
              class = metal::enable_if_t<metal::is_arithmetic_v<T> && !metal::is_same_v<T, bfloat>>>      \
    MSL_INLINE T& operator op##=(T& a, B b) {                                                            \
        return a = static_cast<T>(a op b);                                                               \
    }
MSL_ASSIGNMENT_OF_BFLOAT(+)
MSL_ASSIGNMENT_OF_BFLOAT(-)
MSL_ASSIGNMENT_OF_BFLOAT(*)
MSL_ASSIGNMENT_OF_BFLOAT(/)
#undef MSL_ASSIGNMENT_OF_BFLOAT

template <class T, class = metal::enable_if_t<metal::is_same_v<T, bfloat>>>
MSL_INLINE constexpr bfloat operator-(T a) {
    return bfloat(-static_cast<float>(a));
}
template <class T, class = metal::enable_if_t<metal::is_same_v<T, bfloat>>>
MSL_INLINE constexpr bfloat operator+(T a) {
    return a;
}

namespace msl_ {
// An integer literal as an arm of a conditional expression. Its type follows the other arm: an int and a bfloat, which
// convert to each other, have no common type in C++, and in Metal it is bfloat.
template <auto value>
struct Literal {
    MSL_INLINE constexpr operator decltype(value)() const { return value; }
    template <class T, metal::enable_if_t<metal::is_class_v<T>, int> = 0>
    MSL_INLINE constexpr operator T() const {
        return T(value);
    }
};

// `arm, Beside<U>()` is the arm of a conditional expression whose other arm has type U: an integer beside a bfloat is
// a bfloat, all else stays what it is. (A comma, as an arm may be void.)
template <class U>
struct Beside {};
template <class T, class U>
MSL_INLINE constexpr decltype(auto) operator,(T&& arm, Beside<U>) {
    using Arm = metal::remove_cv_t<metal::remove_reference_t<T>>;
    using Other = metal::remove_cv_t<metal::remove_reference_t<U>>;
    if constexpr (metal::is_integral_v<Arm> && metal::is_same_v<Other, bfloat>)
        return bfloat(arm);
    else if constexpr (metal::is_same_v<T, metal::remove_reference_t<T>>)  // deduced from a temporary
        return Arm(static_cast<T&&>(arm));
    else
        return static_cast<T>(arm);
}
}  // namespace msl_

namespace metal {
using MSL_ROOT::as_type;
using MSL_ROOT::bfloat;
using MSL_ROOT::half;
using MSL_ROOT::int16_t;
using MSL_ROOT::int32_t;
using MSL_ROOT::int64_t;
using MSL_ROOT::int8_t;
using MSL_ROOT::size_t;
using MSL_ROOT::uchar;
using MSL_ROOT::uint;
using MSL_ROOT::uint16_t;
using MSL_ROOT::uint32_t;
using MSL_ROOT::uint64_t;
using MSL_ROOT::uint8_t;
using MSL_ROOT::ulong;
using MSL_ROOT::ushort;
}  // namespace metal

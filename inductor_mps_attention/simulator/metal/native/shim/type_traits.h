// <metal_type_traits>, and the classes of types that Metal's library functions are overloaded for.
#pragma once
#include "config.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
struct bfloat;

namespace metal {

template <class T, T v>
struct integral_constant {
    static constexpr T value = v;
    using value_type = T;
    using type = integral_constant;
    constexpr operator T() const { return v; }
};
template <bool b>
using bool_constant = integral_constant<bool, b>;
// Private names of Apple's headers that projects use.
template <class... B>
struct _disjunction : bool_constant<(B::value || ...)> {};
template <class... B>
struct _conjunction : bool_constant<(B::value && ...)> {};
template <class B>
struct _negation : bool_constant<!B::value> {};
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};
template <class A, class B>
constexpr bool is_same_v = is_same<A, B>::value;

template <bool b, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
    using type = T;
};
template <bool b, class T = void>
using enable_if_t = typename enable_if<b, T>::type;

template <bool b, class T, class F>
struct conditional {
    using type = T;
};
template <class T, class F>
struct conditional<false, T, F> {
    using type = F;
};
template <bool b, class T, class F>
using conditional_t = typename conditional<b, T, F>::type;

namespace msl_detail {
template <class...>
using void_t = void;  // public kernels declare a metal::void_t of their own
}  // namespace msl_detail

template <class T>
struct remove_const {
    using type = T;
};
template <class T>
struct remove_const<const T> {
    using type = T;
};
template <class T>
using remove_const_t = typename remove_const<T>::type;

template <class T>
struct remove_volatile {
    using type = T;
};
template <class T>
struct remove_volatile<volatile T> {
    using type = T;
};
template <class T>
using remove_volatile_t = typename remove_volatile<T>::type;

template <class T>
struct remove_cv {
    using type = remove_volatile_t<remove_const_t<T>>;
};
template <class T>
using remove_cv_t = typename remove_cv<T>::type;

template <class T>
struct remove_reference {
    using type = T;
};
template <class T>
struct remove_reference<T&> {
    using type = T;
};
template <class T>
struct remove_reference<T&&> {
    using type = T;
};
template <class T>
using remove_reference_t = typename remove_reference<T>::type;

template <class T>
using remove_addrspace_t = remove_cv_t<T>;  // `constant` becomes `const` in translation

template <class T>
struct remove_pointer {
    using type = T;
};
template <class T>
struct remove_pointer<T*> {
    using type = T;
};
template <class T>
using remove_pointer_t = typename remove_pointer<T>::type;

template <class T>
struct remove_extent {
    using type = T;
};
template <class T, size_t N>
struct remove_extent<T[N]> {
    using type = T;
};
template <class T>
using remove_extent_t = typename remove_extent<T>::type;

template <class T>
struct decay {
    using type = remove_cv_t<remove_reference_t<T>>;
};
template <class T>
using decay_t = typename decay<T>::type;

template <class T>
T&& declval() noexcept;

template <class T>
MSL_INLINE constexpr remove_reference_t<T>&& move(T&& value) {
    return static_cast<remove_reference_t<T>&&>(value);
}

template <class T>
struct is_pointer : false_type {};
template <class T>
struct is_pointer<T*> : true_type {};
template <class T>
constexpr bool is_pointer_v = is_pointer<T>::value;

template <class T>
struct is_array : false_type {};
template <class T, size_t N>
struct is_array<T[N]> : true_type {};
template <class T>
constexpr bool is_array_v = is_array<T>::value;

template <class T>
struct is_void : is_same<remove_cv_t<T>, void> {};
template <class T>
constexpr bool is_void_v = is_void<T>::value;

template <class T, class... Options>
constexpr bool is_any_of = (is_same_v<remove_cv_t<T>, Options> || ...);

template <class T>
struct is_integral : bool_constant<is_any_of<T, bool, char, signed char, uchar, short, ushort, int, uint, long, ulong,
                                             long long, unsigned long long>> {};
template <class T>
constexpr bool is_integral_v = is_integral<T>::value;

template <class T>
struct is_floating_point : bool_constant<is_any_of<T, float, half, bfloat>> {};
template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>::value;

template <class T>
struct is_arithmetic : bool_constant<is_integral_v<T> || is_floating_point_v<T>> {};
template <class T>
constexpr bool is_arithmetic_v = is_arithmetic<T>::value;

template <class T>
struct is_enum : bool_constant<__is_enum(T)> {};
template <class T>
constexpr bool is_enum_v = is_enum<T>::value;

template <class T>
struct is_class : bool_constant<__is_class(T)> {};
template <class T>
constexpr bool is_class_v = is_class<T>::value;

template <class T>
struct is_scalar : bool_constant<is_arithmetic_v<T> || is_pointer_v<T> || is_enum_v<T>> {};
template <class T>
constexpr bool is_scalar_v = is_scalar<T>::value;

template <class T>
struct is_const : false_type {};
template <class T>
struct is_const<const T> : true_type {};
template <class T>
constexpr bool is_const_v = is_const<T>::value;

template <class T>
struct is_unsigned : bool_constant<is_any_of<T, bool, uchar, ushort, uint, ulong, unsigned long long>> {};
template <class T>
constexpr bool is_unsigned_v = is_unsigned<T>::value;

template <class T>
struct is_signed : bool_constant<is_arithmetic_v<T> && !is_unsigned_v<T>> {};
template <class T>
constexpr bool is_signed_v = is_signed<T>::value;

template <class Base, class Derived>
struct is_base_of : bool_constant<__is_base_of(Base, Derived)> {};
template <class Base, class Derived>
constexpr bool is_base_of_v = is_base_of<Base, Derived>::value;

namespace msl_detail {
template <class To>
void accepts(To);
template <class From, class To, class = void>
struct converts : false_type {};
template <class From, class To>
struct converts<From, To, msl_detail::void_t<decltype(accepts<To>(declval<From>()))>> : true_type {};
}  // namespace msl_detail
template <class From, class To>
struct is_convertible : msl_detail::converts<From, To> {};
template <class From, class To>
constexpr bool is_convertible_v = is_convertible<From, To>::value;

template <class T>
struct make_unsigned {
    using type = T;
};
template <>
struct make_unsigned<char> {
    using type = uchar;
};
template <>
struct make_unsigned<signed char> {
    using type = uchar;
};
template <>
struct make_unsigned<short> {
    using type = ushort;
};
template <>
struct make_unsigned<int> {
    using type = uint;
};
template <>
struct make_unsigned<long> {
    using type = ulong;
};
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;

template <class T>
struct make_signed {
    using type = T;
};
template <>
struct make_signed<uchar> {
    using type = char;
};
template <>
struct make_signed<ushort> {
    using type = short;
};
template <>
struct make_signed<uint> {
    using type = int;
};
template <>
struct make_signed<ulong> {
    using type = long;
};
template <class T>
using make_signed_t = typename make_signed<T>::type;

// Constraints of the shim's templates. Apple's library has no bfloat math, so bfloat is none of these in strict mode.
namespace msl_detail {
// Whether functions refuse bfloat, as strict mode wants; a text that is read more kindly specialises it to false.
template <class T>
constexpr bool refuses_bfloat = is_same_v<T, bfloat>;
template <class T>
using if_refused = enable_if_t<refuses_bfloat<T>>;
template <class T>
using if_kindly_read = enable_if_t<is_same_v<T, bfloat> && !refuses_bfloat<T>, int>;
template <class T>
constexpr bool is_math_float = is_any_of<T, float, half> || (is_same_v<T, bfloat> && !refuses_bfloat<T>);
template <class T>
constexpr bool is_math_integer = is_integral_v<T> && !is_same_v<remove_cv_t<T>, bool>;
template <class T>
using if_arithmetic = enable_if_t<is_arithmetic_v<T>>;
template <class T>
using if_math_float = enable_if_t<is_math_float<T>>;
template <class T>
using if_math_integer = enable_if_t<is_math_integer<T>>;
}  // namespace msl_detail

}  // namespace metal

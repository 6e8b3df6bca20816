// The Metal library as declarations with real address spaces, for a syntax check by clang. Two dialects: as C++ for
// OpenCL an unqualified reference and `this` are generic, as in Metal 4.1; as plain C++ they are thread, as before.
// Overloads are wider than Metal's: which calls exist is the shim's to say.
#pragma once
#pragma clang system_header

#ifdef __OPENCL_CPP_VERSION__
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#pragma OPENCL EXTENSION __cl_clang_variadic_functions : enable
#define device __global
#define threadgroup __local
#define constant const __constant
#define thread __private
#define atomic_int msl_atomic_int
#define atomic_uint msl_atomic_uint
#define atomic_float msl_atomic_float
#define atomic_ulong msl_atomic_ulong
#else
#define device __attribute__((address_space(1)))
#define threadgroup __attribute__((address_space(3)))
#define constant const __attribute__((address_space(2)))
#define thread
typedef _Float16 half;
#endif
// Keywords of OpenCL that are names in Metal.
#define kernel
#define local msl_local
#define global msl_global
#define generic msl_generic
#define pipe msl_pipe
#define uniform_t msl_uniform

typedef __bf16 bfloat;
typedef bfloat bfloat16_t;
typedef half float16_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

namespace metal {
template <class T, int n> using vec = T __attribute__((ext_vector_type(n)));
template <class T, int n> using packed_vec = vec<T, n>;
template <class T> struct element_of { using type = T; };
template <class T, int n> struct element_of<T __attribute__((ext_vector_type(n)))> { using type = T; };
template <class T, class U> struct rebound { using type = U; };
template <class T, int n, class U> struct rebound<T __attribute__((ext_vector_type(n))), U> { using type = vec<U, n>; };
template <class A, class B> struct wider { using type = decltype(A() + B()); };
template <class A> struct wider<A, A> { using type = A; };

// The constructor makes arrays of matrices in threadgroup memory as illegal here as they are in Metal.
template <class T, int columns_, int rows_> struct matrix {
  vec<T, rows_> columns[columns_];
  matrix() : columns{} {}
  explicit matrix(T);
  template <class... X> explicit matrix(X...);
  vec<T, rows_>& operator[](int i) { return columns[i]; }
  const vec<T, rows_>& operator[](int i) const { return columns[i]; }
};
}  // namespace metal

#define MSL_VECTORS(T)                                                            \
  typedef metal::vec<T, 2> T##2; typedef metal::vec<T, 3> T##3; typedef metal::vec<T, 4> T##4; \
  typedef T##2 packed_##T##2; typedef T##3 packed_##T##3; typedef T##4 packed_##T##4;          \
  namespace metal { using ::T##2; using ::T##3; using ::T##4; }
#define MSL_EACH_SCALAR(X) \
  X(float) X(half) X(bfloat) X(int) X(uint) X(short) X(ushort) X(char) X(uchar) X(long) X(ulong)
MSL_EACH_SCALAR(MSL_VECTORS)
#ifdef __OPENCL_CPP_VERSION__  // which has no vectors of bool
typedef metal::vec<char, 2> bool2; typedef metal::vec<char, 3> bool3; typedef metal::vec<char, 4> bool4;
#else
MSL_VECTORS(bool)
#endif
#define MSL_MATRICES(T)                                                                                     \
  typedef metal::matrix<T, 2, 2> T##2x2; typedef metal::matrix<T, 2, 3> T##2x3; typedef metal::matrix<T, 2, 4> T##2x4; \
  typedef metal::matrix<T, 3, 2> T##3x2; typedef metal::matrix<T, 3, 3> T##3x3; typedef metal::matrix<T, 3, 4> T##3x4; \
  typedef metal::matrix<T, 4, 2> T##4x2; typedef metal::matrix<T, 4, 3> T##4x3; typedef metal::matrix<T, 4, 4> T##4x4;
MSL_MATRICES(float) MSL_MATRICES(half)

template <class V, class... X> constexpr V msl_make(X...) { return V(); }
template <class To, class From> To as_type(From);

namespace metal {
using ::as_type;
using ::bfloat; using ::uchar; using ::uint; using ::ulong; using ::ushort; using ::size_t;
#ifndef __OPENCL_CPP_VERSION__
using ::half;  // a keyword there
#endif
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;

template <class T, T v> struct integral_constant { static constant constexpr T value = v; };
template <bool v> struct bool_constant { static constant constexpr bool value = v; };
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> constant constexpr bool is_same_v = is_same<A, B>::value;
template <bool c, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool c, class T = void> using enable_if_t = typename enable_if<c, T>::type;
template <bool c, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
template <bool c, class A, class B> using conditional_t = typename conditional<c, A, B>::type;
template <class T> struct remove_cv { using type = T; };
template <class T> struct remove_cv<const T> { using type = T; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using decay_t = remove_cv_t<T>;
template <class T> constant constexpr bool is_floating_point_v =
    is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>;
template <class T> constant constexpr bool is_integral_v = __is_integral(T);
template <class T> constant constexpr bool is_signed_v = __is_signed(T);
template <class T> constant constexpr bool is_unsigned_v = __is_unsigned(T);
template <class T> constant constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T> struct is_integral : bool_constant<__is_integral(T)> {};
template <class T> struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T> T declval();
template <class T> struct numeric_limits {
  static constexpr T max() { return T(); }
  static constexpr T min() { return T(); }
  static constexpr T lowest() { return T(); }
  static constexpr T infinity() { return T(); }
  static constexpr T quiet_NaN() { return T(); }
  static constexpr T epsilon() { return T(); }
  static constexpr T denorm_min() { return T(); }
};
template <class T, size_t n> struct array {
  T elements[n];
  constexpr T& operator[](size_t i) { return elements[i]; }
  constexpr const T& operator[](size_t i) const { return elements[i]; }
  static constexpr size_t size() { return n; }
};

#define MSL_ONE(name) template <class T> constexpr T name(T) { return T(); }
#define MSL_TWO(name) \
  template <class A, class B> constexpr typename wider<A, B>::type name(A, B) { return {}; }
#define MSL_THREE(name) \
  template <class A, class B, class C> constexpr typename wider<A, typename wider<B, C>::type>::type name(A, B, C) { return {}; }
#define MSL_MATH                                                                                                  \
  MSL_ONE(exp) MSL_ONE(exp2) MSL_ONE(exp10) MSL_ONE(log) MSL_ONE(log2) MSL_ONE(log10) MSL_ONE(sqrt) MSL_ONE(rsqrt) \
  MSL_ONE(sin) MSL_ONE(cos) MSL_ONE(tan) MSL_ONE(asin) MSL_ONE(acos) MSL_ONE(atan) MSL_ONE(sinh) MSL_ONE(cosh)     \
  MSL_ONE(tanh) MSL_ONE(asinh) MSL_ONE(acosh) MSL_ONE(atanh) MSL_ONE(floor) MSL_ONE(ceil) MSL_ONE(trunc)           \
  MSL_ONE(round) MSL_ONE(rint) MSL_ONE(fabs) MSL_ONE(saturate) MSL_ONE(fract) MSL_ONE(sinpi) MSL_ONE(cospi)        \
  MSL_ONE(abs) MSL_ONE(sign) MSL_ONE(normalize) MSL_TWO(pow) MSL_TWO(powr) MSL_TWO(atan2) MSL_TWO(fmod)            \
  MSL_TWO(divide) MSL_TWO(fmax) MSL_TWO(fmin) MSL_TWO(copysign) MSL_TWO(fdim) MSL_TWO(max) MSL_TWO(min)            \
  MSL_TWO(step) MSL_THREE(clamp) MSL_THREE(fma) MSL_THREE(mix) MSL_THREE(max3) MSL_THREE(min3) MSL_THREE(median3)  \
  template <class T> T sincos(T, thread T&);                                                                       \
  template <class T> T ldexp(T, int);                                                                              \
  template <class T> T frexp(T, thread int&);                                                                      \
  template <class T> T modf(T, thread T&);
MSL_MATH
namespace precise { MSL_MATH }
namespace fast { MSL_MATH }
MSL_ONE(popcount) MSL_ONE(clz) MSL_ONE(ctz) MSL_ONE(reverse_bits)
MSL_TWO(mulhi) MSL_TWO(rotate) MSL_TWO(addsat) MSL_TWO(subsat) MSL_TWO(absdiff) MSL_TWO(hadd) MSL_TWO(rhadd)
template <class T> T extract_bits(T, uint, uint);
template <class T> T insert_bits(T, T, uint, uint);
template <class T> typename element_of<T>::type dot(T, T);
template <class T> typename element_of<T>::type length(T);
template <class T> typename element_of<T>::type distance(T, T);
template <class T> bool all(T);
template <class T> bool any(T);
template <class T> typename rebound<T, bool>::type isnan(T);
template <class T> typename rebound<T, bool>::type isinf(T);
template <class T> typename rebound<T, bool>::type isfinite(T);
template <class T> typename rebound<T, bool>::type signbit(T);
template <class T> typename rebound<T, bool>::type isunordered(T, T);
template <class A, class B, class C> typename wider<A, B>::type select(A, B, C);

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
constexpr mem_flags operator|(mem_flags a, mem_flags) { return a; }
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
enum memory_order { memory_order_relaxed, memory_order_seq_cst };
void threadgroup_barrier(mem_flags);
void threadgroup_barrier(mem_flags, thread_scope);
void simdgroup_barrier(mem_flags);
void atomic_thread_fence(mem_flags, memory_order, thread_scope);

struct simd_vote {
  typedef ulong vote_t;
  explicit simd_vote(ulong);
  bool all() const;
  bool any() const;
  explicit operator vote_t() const;
};
simd_vote simd_ballot(bool);
simd_vote simd_active_threads_mask();
bool simd_any(bool);
bool simd_all(bool);
bool simd_is_first();
#define MSL_LANES(name) template <class T> T name(T);
#define MSL_SHUFFLE(name) template <class T> T name(T, ushort);
MSL_LANES(simd_sum) MSL_LANES(simd_product) MSL_LANES(simd_max) MSL_LANES(simd_min) MSL_LANES(simd_and)
MSL_LANES(simd_or) MSL_LANES(simd_xor) MSL_LANES(simd_broadcast_first) MSL_LANES(quad_sum) MSL_LANES(quad_max)
MSL_LANES(simd_prefix_inclusive_sum) MSL_LANES(simd_prefix_exclusive_sum) MSL_LANES(simd_prefix_inclusive_product)
MSL_LANES(simd_prefix_exclusive_product) MSL_LANES(quad_min)
MSL_SHUFFLE(simd_shuffle) MSL_SHUFFLE(simd_broadcast) MSL_SHUFFLE(simd_shuffle_xor) MSL_SHUFFLE(simd_shuffle_down)
MSL_SHUFFLE(simd_shuffle_up) MSL_SHUFFLE(simd_shuffle_rotate_down) MSL_SHUFFLE(quad_shuffle) MSL_SHUFFLE(quad_broadcast)
MSL_SHUFFLE(quad_shuffle_xor) MSL_SHUFFLE(quad_shuffle_down) MSL_SHUFFLE(quad_shuffle_up)
template <class T> T simd_shuffle_and_fill_down(T, T, ushort);
template <class T> T simd_shuffle_and_fill_up(T, T, ushort);

template <class T, int rows_, int columns_> struct simdgroup_matrix {
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T);
#ifdef __OPENCL_CPP_VERSION__
  thread vec<T, 2>& thread_elements() thread;
#else
  vec<T, 2>& thread_elements();
#endif
};
template <class T, int rows_, int columns_ = rows_> simdgroup_matrix<T, rows_, columns_> make_filled_simdgroup_matrix(T);
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>&, simdgroup_matrix<A, 8, 8>,
                                   simdgroup_matrix<B, 8, 8>, simdgroup_matrix<C, 8, 8>);
template <class D, class A, class B>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>&, simdgroup_matrix<A, 8, 8>, simdgroup_matrix<B, 8, 8>);
#define MSL_MATRIX_MEMORY(space)                                                                                       \
  template <class T>                                                                                                   \
  void simdgroup_load(thread simdgroup_matrix<T, 8, 8>&, const space T*, ulong = 8, ulong2 = (ulong2)(0), bool = false); \
  template <class T>                                                                                                   \
  void simdgroup_store(simdgroup_matrix<T, 8, 8>, space T*, ulong = 8, ulong2 = (ulong2)(0), bool = false);
MSL_MATRIX_MEMORY(device) MSL_MATRIX_MEMORY(threadgroup)

template <class T> struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<ulong> atomic_ulong;
#define MSL_ATOMIC(space, name) template <class T, class U> T name(volatile space atomic<T>*, U, memory_order);
#define MSL_ATOMICS(space)                                                                                   \
  MSL_ATOMIC(space, atomic_fetch_add_explicit) MSL_ATOMIC(space, atomic_fetch_sub_explicit)                  \
  MSL_ATOMIC(space, atomic_fetch_and_explicit) MSL_ATOMIC(space, atomic_fetch_or_explicit)                   \
  MSL_ATOMIC(space, atomic_fetch_xor_explicit) MSL_ATOMIC(space, atomic_fetch_min_explicit)                  \
  MSL_ATOMIC(space, atomic_fetch_max_explicit) MSL_ATOMIC(space, atomic_exchange_explicit)                   \
  MSL_ATOMIC(space, atomic_store_explicit)                                                                   \
  template <class T> T atomic_load_explicit(const volatile space atomic<T>*, memory_order);                  \
  template <class T, class U>                                                                                \
  bool atomic_compare_exchange_weak_explicit(volatile space atomic<T>*, thread T*, U, memory_order, memory_order);
MSL_ATOMICS(device) MSL_ATOMICS(threadgroup)
}  // namespace metal

using metal::atomic_float; using metal::atomic_int; using metal::atomic_uint;
typedef metal::simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef metal::simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef metal::simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
namespace metal {
using ::simdgroup_bfloat8x8;
using ::simdgroup_float8x8;
using ::simdgroup_half8x8;
}  // namespace metal

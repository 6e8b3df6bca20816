// The compiler builtins that the shim and Metal's macros are written with, where NVRTC lacks them.
#pragma once

#define MSL_BUILTIN __device__ __forceinline__

#define __FLT_MAX__ 3.402823466385288598e38f
#define __FLT_MIN__ 1.175494350822287508e-38f
#define __FLT_EPSILON__ 1.1920928955078125e-7f
#define __FLT_DENORM_MIN__ 1.401298464324817071e-45f

MSL_BUILTIN constexpr float __builtin_inff() { return __builtin_bit_cast(float, 0x7f800000u); }
MSL_BUILTIN constexpr float __builtin_nanf(const char*) { return __builtin_bit_cast(float, 0x7fc00000u); }
MSL_BUILTIN void __builtin_memcpy(void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); }

#define MSL_UNARY_BUILTIN(name) \
    MSL_BUILTIN float __builtin_##name(float x) { return ::name(x); }
#define MSL_BINARY_BUILTIN(name) \
    MSL_BUILTIN float __builtin_##name(float x, float y) { return ::name(x, y); }
MSL_UNARY_BUILTIN(log10f)
MSL_UNARY_BUILTIN(sqrtf)
MSL_UNARY_BUILTIN(sinf)
MSL_UNARY_BUILTIN(cosf)
MSL_UNARY_BUILTIN(tanf)
MSL_UNARY_BUILTIN(asinf)
MSL_UNARY_BUILTIN(acosf)
MSL_UNARY_BUILTIN(atanf)
MSL_UNARY_BUILTIN(sinhf)
MSL_UNARY_BUILTIN(coshf)
MSL_UNARY_BUILTIN(tanhf)
MSL_UNARY_BUILTIN(asinhf)
MSL_UNARY_BUILTIN(acoshf)
MSL_UNARY_BUILTIN(atanhf)
MSL_UNARY_BUILTIN(floorf)
MSL_UNARY_BUILTIN(ceilf)
MSL_UNARY_BUILTIN(truncf)
MSL_UNARY_BUILTIN(roundf)
MSL_UNARY_BUILTIN(rintf)
MSL_UNARY_BUILTIN(fabsf)
MSL_BINARY_BUILTIN(powf)
MSL_BINARY_BUILTIN(atan2f)
MSL_BINARY_BUILTIN(fmodf)
MSL_BINARY_BUILTIN(copysignf)
MSL_BINARY_BUILTIN(fdimf)
MSL_BINARY_BUILTIN(nextafterf)
#undef MSL_UNARY_BUILTIN
#undef MSL_BINARY_BUILTIN

MSL_BUILTIN float __builtin_fmaf(float x, float y, float z) { return ::fmaf(x, y, z); }
MSL_BUILTIN float __builtin_ldexpf(float x, int exponent) { return ::ldexpf(x, exponent); }
MSL_BUILTIN float __builtin_frexpf(float x, int* exponent) { return ::frexpf(x, exponent); }
MSL_BUILTIN float __builtin_modff(float x, float* whole) { return ::modff(x, whole); }
MSL_BUILTIN int __builtin_ilogbf(float x) { return ::ilogbf(x); }
MSL_BUILTIN double __builtin_pow(double x, double y) { return ::pow(x, y); }
MSL_BUILTIN double __builtin_rint(double x) { return ::rint(x); }
MSL_BUILTIN double __builtin_sin(double x) { return ::sin(x); }
MSL_BUILTIN double __builtin_cos(double x) { return ::cos(x); }

// (Macros: the compiler knows these names, and refuses a function of its own for them.)
#define __builtin_isnan(x) ((x) != (x))
#define __builtin_isinf_sign(x) (::fabsf(x) == __builtin_inff())
#define __builtin_isfinite(x) (::fabsf(x) < __builtin_inff())
#define __builtin_isnormal(x) (::fabsf(x) < __builtin_inff() && ::fabsf(x) >= __FLT_MIN__)
#define __builtin_signbit(x) (__float_as_int(x) < 0)

MSL_BUILTIN int __builtin_popcountll(unsigned long long x) { return __popcll(x); }
MSL_BUILTIN int __builtin_clzll(unsigned long long x) { return __clzll(x); }
MSL_BUILTIN int __builtin_ctzll(unsigned long long x) { return __ffsll(x) - 1; }
MSL_BUILTIN int __builtin_ctz(unsigned x) { return __ffs(x) - 1; }

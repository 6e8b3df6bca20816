// <metal_logging>: accepted and dropped.
#pragma once
#include "scalars.h"

namespace metal {

enum class log_type { debug, info, standard, error, fault };

struct os_log {
    MSL_INLINE constexpr os_log(const char*, const char*) {}
    template <class... Values>
    MSL_INLINE void log(const char*, Values...) const {}
    template <class... Values>
    MSL_INLINE void log_with_type(log_type, const char*, Values...) const {}
    template <class... Values>
    MSL_INLINE void log_debug(const char*, Values...) const {}
    template <class... Values>
    MSL_INLINE void log_info(const char*, Values...) const {}
    template <class... Values>
    MSL_INLINE void log_error(const char*, Values...) const {}
    template <class... Values>
    MSL_INLINE void log_fault(const char*, Values...) const {}
};
constexpr os_log os_log_default("", "");

}  // namespace metal

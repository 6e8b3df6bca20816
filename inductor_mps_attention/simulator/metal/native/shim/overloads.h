// A parameter that makes its function the worse choice of two which Metal tells apart by address spaces.
#pragma once
#include "type_traits.h"

namespace msl_ {
template <class T>
struct Weaker {
    T value;
    template <class Argument>
    MSL_INLINE Weaker(Argument argument) : value(static_cast<T>(argument)) {}
    MSL_INLINE operator T() const { return value; }
};
}  // namespace msl_

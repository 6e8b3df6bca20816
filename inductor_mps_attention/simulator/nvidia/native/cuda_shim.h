// Stands in for <metal_stdlib> when translated Metal text is compiled for an NVIDIA GPU by NVRTC. The headers are those
// of the CPU engine, except where this folder has one of the same name. All of it, and the text itself, lies in one
// namespace, so that half, float4, max and others hide what CUDA calls so.
#pragma once

#include "builtins.h"

namespace metal_text {
#include "msl_shim.h"

MSL_INLINE half::half(bfloat value) : half(static_cast<float>(value)) {}
}  // namespace metal_text

namespace metal = metal_text::metal;
namespace msl_ = metal_text::msl_;

// rms_norm as a build with MPS dispatches it: without gradients one fused operator where there is a weight, else plain math.
#pragma once
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rms_norm_compositeimplicitautograd_dispatch.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <vector>

namespace mps_simulator {

inline at::Tensor rms_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                           const std::optional<at::Tensor>& weight, std::optional<double> epsilon) {
  if (!input.device().is_mps()) return at::compositeimplicitautograd::rms_norm_symint(input, normalized_shape, weight, epsilon);
  std::vector<int64_t> shape;
  for (const auto& size : normalized_shape) shape.push_back(size.guard_int(__FILE__, __LINE__));
  const bool has_weight = weight && weight->defined();
  const bool needs_grad = c10::GradMode::is_enabled() && (input.requires_grad() || (has_weight && weight->requires_grad()));
  if (has_weight && !needs_grad && !input.is_complex() && weight->dtype() == input.dtype())
    return std::get<0>(at::_fused_rms_norm(input.contiguous(), shape, weight, epsilon));
  return std::get<0>(at::compositeimplicitautograd::_fused_rms_norm(input, shape, weight, epsilon));
}

}  // namespace mps_simulator

TORCH_LIBRARY_IMPL(aten, MPS, library) {
  library.impl("_fused_rms_norm", TORCH_FN(at::compositeimplicitautograd::_fused_rms_norm));
}

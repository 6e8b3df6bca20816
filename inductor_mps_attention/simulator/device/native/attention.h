// scaled_dot_product_attention as a build with MPS dispatches it: without gradients and dropout the MPS operator, else plain
// math. The composite of this build would ask a dispatch table that has no entry for MPS, and stop.
#pragma once
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_attention_math_for_mps.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <limits>

namespace mps_simulator {

using MaybeTensor = std::optional<at::Tensor>;

inline std::tuple<at::Tensor, at::Tensor> attention_math_for_mps(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const MaybeTensor& mask, double dropout,
    bool is_causal, const MaybeTensor& dropout_mask, std::optional<double> scale, bool enable_gqa) {
  return at::_scaled_dot_product_attention_math(query, key, value, mask, dropout, is_causal, dropout_mask, scale,
                                                enable_gqa);
}

inline MaybeTensor additive_mask(const MaybeTensor& mask, const at::Tensor& query) {
  if (!mask || mask->scalar_type() != c10::kBool) return mask;
  const auto zero = at::scalar_tensor(0.0, query.options().requires_grad(std::nullopt));
  return at::where(mask->logical_not(), -std::numeric_limits<double>::infinity(), zero);
}

inline at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const MaybeTensor& mask, double dropout, bool is_causal, std::optional<double> scale,
                            bool enable_gqa) {
  if (!query.device().is_mps())
    return at::native::scaled_dot_product_attention(query, key, value, mask, dropout, is_causal, scale, enable_gqa);
  const bool needs_grad =
      c10::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  const auto operation = dropout == 0.0 && !needs_grad ? at::_scaled_dot_product_attention_math_for_mps
                                                       : at::_scaled_dot_product_attention_math;
  return std::get<0>(operation(query, key, value, additive_mask(mask, query), dropout, is_causal, std::nullopt, scale,
                               enable_gqa));
}

}  // namespace mps_simulator

TORCH_LIBRARY_IMPL(aten, MPS, library) {
  library.impl("_scaled_dot_product_attention_math_for_mps", mps_simulator::attention_math_for_mps);
}

// Kernels of the device's own: making tensors, views, and the operators that are composite elsewhere but have an MPS kernel
// in native_functions.yaml, so that autograd and tracing see the same operators as on a real build.
#pragma once
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/view_native.h>

#include "fallback.h"

namespace mps_simulator {

using at::Tensor;
constexpr c10::DispatchKeySet device_keys(c10::DispatchKey::MPS);

inline Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                    std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  refuse_float64(c10::dtype_or_default(dtype));
  return at::detail::empty_generic(size, &allocator, device_keys, c10::dtype_or_default(dtype), format);
}

inline Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                            std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  refuse_float64(c10::dtype_or_default(dtype));
  return at::detail::empty_strided_generic(size, stride, &allocator, device_keys, c10::dtype_or_default(dtype));
}

// A tensor of zeros without memory, as forward-mode and composite backward formulas make it.
inline Tensor efficient_zero_tensor(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                                    std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  at::native::ZeroTensorAllocator no_memory(simulated_device);
  const auto keys = device_keys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &no_memory, keys, c10::dtype_or_default(dtype), std::nullopt);
}

inline std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& input, const Tensor& grad_out,
                                                          const Tensor& weight, std::array<bool, 3> wanted) {
  Tensor grad_input, grad_weight, grad_bias;
  const auto grad_rows = grad_out.reshape({-1, grad_out.size(-1)});
  if (wanted[0]) grad_input = at::matmul(grad_out, weight);
  if (wanted[1]) grad_weight = at::mm(grad_rows.t(), input.reshape({-1, input.size(-1)}));
  if (wanted[2]) grad_bias = at::sum(grad_rows, 0);
  return {grad_input, grad_weight, grad_bias};
}

inline Tensor max_pool2d_backward(const Tensor& grad_out, const Tensor& input, c10::IntArrayRef kernel_size,
                                  c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
                                  bool ceil_mode) {
  const auto indices =
      std::get<1>(at::max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode));
  return at::max_pool2d_with_indices_backward(grad_out, input, kernel_size, stride, padding, dilation, ceil_mode,
                                              indices);
}

// The CPU counts other weights than float32 in float64. A real build counts whole numbers in int32 and returns that.
inline Tensor bincount(const Tensor& input, const std::optional<Tensor>& weights, int64_t minlength) {
  Aliases aliases;
  const auto values = aliases.to_cpu(input);
  const bool weighted = weights && weights->defined();
  const auto on_cpu = weighted ? aliases.to_cpu(*weights) : Tensor();
  TORCH_CHECK(!aliases.on_cpu, "bincount: Expected all tensors to be on the same device, but found at least two devices, ",
              "mps:0 and cpu!");
  const auto counts = at::bincount(values, weighted ? std::make_optional(on_cpu) : std::nullopt, minlength);
  if (!weighted || values.numel() == 0) return aliases.to_device(counts);
  return aliases.to_device(counts.to(on_cpu.is_floating_point() ? on_cpu.scalar_type() : at::kInt));
}

inline void not_simulated(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "The operator '", op.operator_name(), "' is not simulated: it has an MPS kernel in a ",
                              "real build, and no CPU kernel that could stand in for it.");
}

}  // namespace mps_simulator

TORCH_LIBRARY_IMPL(aten, MPS, library) {
  using namespace mps_simulator;
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_efficientzerotensor", efficient_zero_tensor);
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("resize_", TORCH_FN(at::native::resize_));
  library.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, c10::Storage)>(at::native::set_));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
  library.impl("bincount", bincount);
  library.impl("linear_backward", linear_backward);
  library.impl("max_pool2d_backward", max_pool2d_backward);
  // Composite code would look for a native MPS path in these, and there is none in this build: they go to the CPU whole.
  for (const auto* name : {"copy_", "convolution", "convolution_backward", "linear", "max_pool2d"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  for (const auto* name :
       {"_convert_weight_to_int4pack", "_weight_int4pack_mm", "_copy_from", "_copy_from_and_resize",
        "_mps_convolution", "mps_convolution_backward", "_mps_convolution_transpose",
        "mps_convolution_transpose_backward"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&not_simulated>());
}

// Operators without a kernel of their own: the CPU kernel runs on aliases of the arguments. As on a real build, an operator
// that has no MPS kernel there is refused here too.
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <string>
#include <unordered_set>

#include "aliases.h"
#include "generator.h"

namespace mps_simulator {

// The operators that a real build has kernels for; empty where every operator may run.
inline std::unordered_set<std::string> supported_operators;

// Operators that take CPU tensors of any shape beside tensors on the device.
inline bool mixes_devices(const std::string& name) {
  static const std::unordered_set<std::string> names{
      "aten::copy_",           "aten::set_",          "aten::index",           "aten::index_put_",
      "aten::_index_put_impl_", "aten::_unsafe_index", "aten::_unsafe_index_put"};
  const bool of_a_library = name.compare(0, 6, "aten::") != 0;
  return of_a_library || names.count(name);
}

inline void argument_to_cpu(const c10::Argument& argument, c10::IValue& value, Aliases& aliases) {
  if (value.isDevice()) {
    if (!value.toDevice().is_mps()) return;
    value = c10::Device(c10::kCPU);
    aliases.on_device = true;
  } else if (argument.name() != "generator") {
    Aliases::replace_tensors(value, [&](const at::Tensor& tensor) { return aliases.to_cpu(tensor); });
  }
}

// In need of all other arguments, which say whether the operator is one of the device.
inline void exchange_generators(const c10::FunctionSchema& schema, c10::IValue* arguments, bool on_device) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].name() != "generator") continue;
    auto& value = arguments[i];
    if (on_device)
      value = generator_for_operator(value.isNone() ? default_generator() : value.toGenerator());
    else
      TORCH_CHECK(value.isNone() || !value.toGenerator().device().is_mps(),
                  "Expected a 'cpu' device type for generator but found 'mps'");
  }
}

inline void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto& schema = op.schema();
  Aliases aliases;
  const auto first_argument = stack->size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    argument_to_cpu(schema.arguments()[i], (*stack)[first_argument + i], aliases);
  exchange_generators(schema, &(*stack)[first_argument], aliases.on_device);
  TORCH_CHECK(!(aliases.on_device && aliases.on_cpu) || mixes_devices(schema.name()), schema.name(),
              ": Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!");
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  aliases.write_back();
  for (auto result = stack->end() - schema.returns().size(); result != stack->end(); ++result)
    Aliases::replace_tensors(*result, [&](const at::Tensor& tensor) { return aliases.to_device(tensor); });
}

inline void refuse_unsupported(const c10::OperatorHandle& op) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      supported_operators.empty() || supported_operators.count(toString(op.operator_name())), "The operator '",
      op.operator_name(),
      "' is not currently implemented for the MPS device. As a temporary fix, you can set the environment variable "
      "`PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for this op.");
}

inline void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_unsupported(op);
  run_on_cpu(op, stack);
}

// What only orders work, and returns nothing: each operation is complete when its call returns.
inline void already_ordered(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_unsupported(op);
  torch::jit::drop(*stack, op.schema().arguments().size());
}

}  // namespace mps_simulator

TORCH_LIBRARY_IMPL(aten, MPS, library) {
  library.impl("record_stream", torch::CppFunction::makeFromBoxedFunction<&mps_simulator::already_ordered>());
}

TORCH_LIBRARY_IMPL(_, MPS, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&mps_simulator::fallback>());
}

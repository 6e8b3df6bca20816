// Composite operators that a build with MPS compiles otherwise than this one. Their kernels are replaced for all devices;
// other devices' tensors go on to the kernel that was there.
#pragma once
#include <torch/library.h>

#include <memory>

#include "attention.h"
#include "normalization.h"

namespace mps_simulator {

// Replacing a composite kernel makes PyTorch warn, once in a process; here it is the intention.
inline const auto replaced_composites = [] {
  struct Silent final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                  c10::DispatchKey::CompositeImplicitAutograd, __FILE__, __LINE__);
  library->impl("scaled_dot_product_attention", attention);
  library->impl("rms_norm", rms_norm);
  return library;
}();

}  // namespace mps_simulator

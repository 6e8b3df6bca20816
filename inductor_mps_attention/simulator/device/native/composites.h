// Composite operators that a build with MPS compiles otherwise than this one. Their kernels are replaced for all devices;
// other devices' tensors go on to the kernel that was there.
#pragma once
#include <torch/library.h>

#include <memory>

#include "attention.h"
#include "lstm.h"
#include "normalization.h"

namespace mps_simulator {

// vmap has the same kernels again under keys of its own. Replacing a kernel makes PyTorch warn, once in a process; here it
// is the intention.
inline std::unique_ptr<torch::Library> replace_composites(c10::DispatchKey key) {
  struct Silent final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  library->impl("scaled_dot_product_attention", attention);
  // Within vmap, what may draw random numbers has a kernel of its own.
  if (key != c10::DispatchKey::FuncTorchVmapMode) library->impl("rms_norm", rms_norm);
  if (key == c10::DispatchKey::CompositeImplicitAutograd) library->impl("lstm.input", lstm);
  return library;
}

inline const auto composites = replace_composites(c10::DispatchKey::CompositeImplicitAutograd);
inline const auto mapped_composites = replace_composites(c10::DispatchKey::FuncTorchBatchedDecomposition);
inline const auto random_composites = replace_composites(c10::DispatchKey::FuncTorchVmapMode);

}  // namespace mps_simulator

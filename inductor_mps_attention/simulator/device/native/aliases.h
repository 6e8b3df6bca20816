// The arguments of one operator call, seen as CPU tensors over the same memory, and its results seen as device tensors again.
// Views, in-place updates, resizing of outputs and strides come out as a kernel of the device would leave them.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/ivalue.h>

#include <utility>
#include <vector>

#include "memory.h"

namespace mps_simulator {

inline void refuse_float64(c10::ScalarType dtype) {
  TORCH_CHECK_TYPE(dtype != c10::kDouble && dtype != c10::kComplexDouble,
                   "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
                   "Please use float32 instead.");
}

class Aliases {
 public:
  bool on_device = false;  // an argument is on the device
  bool on_cpu = false;     // an argument is a CPU tensor that is no scalar

  at::Tensor to_cpu(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_mps()) {
      on_cpu |= tensor.dim() > 0;
      if (tensor.has_storage()) cpu_arguments_.push_back(tensor.storage());
      return tensor;
    }
    on_device = true;
    for (const auto& [cpu, device] : tensors_)
      if (device.is_same(tensor)) return cpu;
    tensors_.emplace_back(same_view(cpu_storage(tensor.storage()), c10::DispatchKey::CPU, tensor), tensor);
    return tensors_.back().first;
  }

  at::Tensor to_device(const at::Tensor& tensor) {
    if (!on_device || !tensor.defined() || !tensor.is_cpu()) return tensor;
    for (const auto& [cpu, device] : tensors_)
      if (cpu.is_same(tensor)) return device;
    TORCH_CHECK(tensor.layout() == c10::kStrided && !tensor.is_quantized(),
                "the simulated mps device has plain strided tensors only, not ", tensor.layout(), " ", tensor.dtype());
    for (const auto& storage : cpu_arguments_)
      if (storage.is_alias_of(tensor.storage())) return tensor;
    for (const auto& [cpu, device] : storages_)
      if (cpu.is_alias_of(tensor.storage())) return same_view(device, c10::DispatchKey::MPS, tensor);
    refuse_float64(tensor.scalar_type());
    storages_.emplace_back(tensor.storage(), device_storage(tensor.storage()));
    return same_view(storages_.back().second, c10::DispatchKey::MPS, tensor);
  }

  // Carries over to the device's tensors what the CPU kernel did to their aliases: other memory, sizes or strides.
  void write_back() {
    // By index: sizes of the lists do not change, but the entries are handles that are modified.
    for (auto& [cpu, device] : storages_) {
      auto* target = device.unsafeGetStorageImpl();
      if (cpu.data() != device.data()) target->set_data_ptr_noswap(as_device_memory(cpu));
      if (cpu.nbytes() != device.nbytes()) target->set_nbytes(cpu.nbytes());
    }
    for (auto& [cpu, device] : tensors_)
      if (cpu.sizes() != device.sizes() || cpu.strides() != device.strides() ||
          cpu.storage_offset() != device.storage_offset())
        device.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }

  // Replaces each tensor in a boxed value: a tensor, or a list of (optional) tensors.
  template <class Convert>
  static void replace_tensors(c10::IValue& value, Convert convert) {
    if (value.isTensor()) {
      value = convert(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> converted;
      for (const at::Tensor& tensor : value.toTensorVector()) converted.push_back(convert(tensor));
      value = converted;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> converted;
      for (const auto& tensor : value.toOptionalTensorVector())
        converted.push_back(tensor ? std::make_optional(convert(*tensor)) : tensor);
      value = converted;
    }
  }

 private:
  static at::Tensor same_view(c10::Storage storage, c10::DispatchKey key, const at::Tensor& tensor) {
    auto view = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), tensor.dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    view._set_conj(tensor.is_conj());
    view._set_neg(tensor.is_neg());
    return view;
  }

  static c10::Storage new_storage(size_t bytes, c10::DataPtr memory, c10::Allocator* owner) {
    return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                              std::move(memory), owner, /*resizable=*/true));
  }

  c10::Storage device_storage(const c10::Storage& cpu) {
    return new_storage(cpu.nbytes(), as_device_memory(cpu), &allocator);
  }

  c10::Storage cpu_storage(const c10::Storage& device) {
    for (const auto& [cpu, known] : storages_)
      if (known.is_alias_of(device)) return cpu;
    auto cpu = new_storage(device.nbytes(), as_cpu_memory(device), c10::GetCPUAllocator());
    storages_.emplace_back(cpu, device);
    return cpu;
  }

  std::vector<c10::Storage> cpu_arguments_;
  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;  // (cpu, device)
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;       // (cpu, device)
};

}  // namespace mps_simulator

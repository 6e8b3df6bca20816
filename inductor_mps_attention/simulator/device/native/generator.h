// Random numbers of the simulated device: a CPU generator in disguise. The CPU kernels draw from the one inside.
#pragma once
#include <ATen/CPUGeneratorImpl.h>

#include "memory.h"

namespace mps_simulator {

struct Generator final : c10::GeneratorImpl {
  at::Generator inner;

  explicit Generator(at::Generator cpu_generator)
      : GeneratorImpl(simulated_device, c10::DispatchKeySet(c10::DispatchKey::MPS)), inner(std::move(cpu_generator)) {}
  void set_current_seed(uint64_t seed) override { inner.set_current_seed(seed); }
  uint64_t current_seed() const override { return inner.current_seed(); }
  uint64_t seed() override { return inner.seed(); }
  void set_offset(uint64_t offset) override { inner.set_offset(offset); }
  uint64_t get_offset() const override { return inner.get_offset(); }
  void set_state(const c10::TensorImpl& state) override { inner.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return inner.unsafeGetGeneratorImpl()->get_state(); }
  Generator* clone_impl() const override { return new Generator(inner.clone()); }
};

inline at::Generator new_generator() { return at::make_generator<Generator>(at::detail::createCPUGenerator()); }

inline const at::Generator& default_generator() {
  static const at::Generator generator = new_generator();
  return generator;
}

}  // namespace mps_simulator

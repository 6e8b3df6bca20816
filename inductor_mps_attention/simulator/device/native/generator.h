// Random numbers of the simulated device. A generator's state is what a real one's is, and as large: seven words, the seed
// and the offset. CPU kernels draw from a CPU generator that each operator finds seeded by them; the numbers are not a Mac's.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Utils.h>

#include <array>

#include "memory.h"

namespace mps_simulator {

struct Generator final : c10::GeneratorImpl {
  Generator()
      : GeneratorImpl(simulated_device, c10::DispatchKeySet(c10::DispatchKey::MPS)),
        inner_(at::detail::createCPUGenerator()) {
    set_current_seed(c10::default_rng_seed_val);
  }

  void set_current_seed(uint64_t seed) override {
    state_.seed = seed;
    state_.words.fill(1);
    state_.words[5] = static_cast<uint32_t>(seed);
    state_.words[6] = static_cast<uint32_t>(seed >> 32);
    set_offset(0);
  }
  uint64_t current_seed() const override { return state_.seed; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_.seed;
  }
  void set_offset(uint64_t offset) override {
    state_.offset = offset;
    state_.words[1] = static_cast<uint32_t>(offset);
    state_.words[2] = static_cast<uint32_t>(offset >> 32);
  }
  uint64_t get_offset() const override { return state_.offset; }

  void set_state(const c10::TensorImpl& tensor) override {
    at::detail::check_rng_state(tensor);
    TORCH_CHECK(tensor.numel() == STATE_BYTES, "RNG state is wrong size");
    const auto* bytes = static_cast<const uint8_t*>(tensor.data());
    std::memcpy(state_.words.data(), bytes, sizeof state_.words);
    std::memcpy(&state_.seed, bytes + sizeof state_.words, sizeof state_.seed);
    std::memcpy(&state_.offset, bytes + sizeof state_.words + sizeof state_.seed, sizeof state_.offset);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto tensor = at::detail::empty_cpu({STATE_BYTES}, c10::kByte, {}, {}, {}, {});
    auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
    std::memcpy(bytes, state_.words.data(), sizeof state_.words);
    std::memcpy(bytes + sizeof state_.words, &state_.seed, sizeof state_.seed);
    std::memcpy(bytes + sizeof state_.words + sizeof state_.seed, &state_.offset, sizeof state_.offset);
    return tensor.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* copy = new Generator;
    copy->state_ = state_;
    return copy;
  }

  // What one operator draws from; the next one finds other numbers.
  const at::Generator& next() {
    const std::lock_guard<std::mutex> lock(mutex_);
    inner_.set_current_seed(state_.offset ? mixed(state_.seed, state_.offset) : state_.seed);
    set_offset(state_.offset + 4);
    return inner_;
  }

 private:
  struct State {
    std::array<uint32_t, 7> words;
    uint64_t seed, offset;
  };
  // The seed itself before the first draw, so that one operator after a seed gives what it gives on the CPU.
  static uint64_t mixed(uint64_t seed, uint64_t offset) {
    uint64_t bits = seed + offset * 0x9E3779B97F4A7C15ull;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ull;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBull;
    return bits ^ bits >> 31;
  }

  static constexpr int64_t STATE_BYTES = 7 * sizeof(uint32_t) + 2 * sizeof(uint64_t);
  State state_;
  at::Generator inner_;
};

inline at::Generator new_generator() { return at::make_generator<Generator>(); }

inline const at::Generator& default_generator() {
  static const at::Generator generator = new_generator();
  return generator;
}

// The CPU generator for one operator that was given `generator`, or none.
inline const at::Generator& generator_for_operator(const at::Generator& generator) {
  TORCH_CHECK(generator.device().is_mps(), "Expected a 'mps' device type for generator but found '",
              generator.device().type(), "'");
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->next();
}

}  // namespace mps_simulator

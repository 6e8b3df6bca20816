// What PyTorch asks of an MPS build: is there a device, how much memory, which generator, allocator and stream.
#pragma once
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "events.h"
#include "generator.h"
#include "memory.h"

namespace mps_simulator {

// The name is the registry's key. The class may hold no data: see `hooks_in_place`.
struct MPSHooks final : at::MPSHooksInterface {
  MPSHooks() = default;
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override {}
  bool hasMPS() const override { return true; }
  bool isOnMacOSorNewer(unsigned, unsigned) const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::Device getDeviceFromPtr(void*) const override { return simulated_device; }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return new_generator(); }

  c10::Allocator* getMPSDeviceAllocator() const override { return &allocator; }
  size_t getCurrentAllocatedMemory() const override { return meter.current(); }
  size_t getDriverAllocatedMemory() const override { return meter.current(); }
  size_t getRecommendedMaxMemory() const override { return recommended_memory; }
  size_t getMaxBufferLength() const override { return longest_buffer; }
  void setMemoryFraction(double ratio) const override { memory_limit.set_ratio(ratio); }
  void emptyCache() const override {}
  bool isPinnedPtr(const void*) const override { return false; }
  // As on a real build, where pin_memory() fails: PyTorch does not put a CPU tensor on memory of the device.
  c10::Allocator* getPinnedMemoryAllocator() const override { return &allocator; }

  void deviceSynchronize() const override {}
  void commitStream() const override {}
  void profilerStartTrace(const std::string&, bool) const override {}
  void profilerStopTrace() const override {}
  uint32_t acquireEvent(bool timing) const override { return events.acquire(timing); }
  void releaseEvent(uint32_t event) const override { events.release(event); }
  void recordEvent(uint32_t event) const override { events.record(event); }
  void waitForEvent(uint32_t) const override {}
  void synchronizeEvent(uint32_t) const override {}
  bool queryEvent(uint32_t) const override { return true; }
  double elapsedTimeOfEvents(uint32_t start, uint32_t end) const override { return events.elapsed(start, end); }
};

using at::MPSHooksRegistry;
using at::RegistererMPSHooksRegistry;
REGISTER_MPS_HOOKS(MPSHooks)

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kMPS;
  static c10::Stream only_stream() { return c10::Stream(c10::Stream::DEFAULT, simulated_device); }

  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device) const override { return simulated_device; }
  c10::Device getDevice() const override { return simulated_device; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    for (const auto index : {c10::kIndex_Byte, c10::kIndex_Char, c10::kIndex_Short, c10::kIndex_Int, c10::kIndex_Long,
                             c10::kIndex_Half, c10::kIndex_Float, c10::kIndex_ComplexHalf, c10::kIndex_ComplexFloat,
                             c10::kIndex_Bool, c10::kIndex_BFloat16, c10::kIndex_UInt16, c10::kIndex_UInt32,
                             c10::kIndex_UInt64})
      capability.capability_data.capability_bits |= uint64_t(1) << index;
    return capability;
  }

  c10::Stream getStream(c10::Device) const noexcept override { return only_stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return only_stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return only_stream(); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return only_stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return only_stream(); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}

  // Events of torch.Event: the pointer holds the time stamp.
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new double;
    *static_cast<double*>(*event) = milliseconds_now();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<double*>(event); }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return *static_cast<double*>(end) - *static_cast<double*>(start);
  }
};
C10_REGISTER_GUARD_IMPL(MPS, Guard)

// PyTorch keeps the first hooks object that it makes. Something may have asked for it before this library was loaded and got
// the interface itself, whose every answer is "no MPS here"; neither class holds data, so ours is put in its place.
inline const bool hooks_in_place = [] {
  c10::SetAllocator(c10::kMPS, &allocator);
  static_assert(sizeof(MPSHooks) == sizeof(at::MPSHooksInterface));
  const auto& hooks = at::detail::getMPSHooks();
  if (!hooks.hasMPS()) new (const_cast<at::MPSHooksInterface*>(&hooks)) MPSHooks();
  // A CUDA build names CUDA as its accelerator even without a GPU, and PyTorch accepts only one accelerator.
  const auto& cuda = at::detail::getCUDAHooks();
  if (cuda.isBuilt() && !cuda.hasCUDA())
    new (const_cast<at::CUDAHooksInterface*>(&cuda)) at::CUDAHooksInterface();
  return true;
}();

}  // namespace mps_simulator

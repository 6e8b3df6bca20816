// Memory of the simulated device: host memory that is counted, and filled with 0xFF bytes when asked.
#pragma once
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace mps_simulator {

inline const c10::Device simulated_device(c10::kMPS, 0);
constexpr size_t recommended_memory = size_t(16) << 30;
constexpr size_t longest_buffer = size_t(8) << 30;

// High-water mark and current size, in bytes of all storages on the device.
class MemoryMeter {
 public:
  void add(int64_t bytes) {
    const int64_t now = current_.fetch_add(bytes) + bytes;
    int64_t highest = peak_.load();
    while (now > highest && !peak_.compare_exchange_weak(highest, now)) {
    }
  }
  void remove(int64_t bytes) { current_.fetch_sub(bytes); }
  int64_t current() const { return current_.load(); }
  int64_t peak() const { return peak_.load(); }
  void reset_peak() { peak_.store(current_.load()); }

 private:
  std::atomic<int64_t> current_{0}, peak_{0};
};

inline MemoryMeter meter;
inline std::atomic<bool> poison_fresh_memory{false};

// "1.50 GiB", as PyTorch's messages of the MPS allocator have sizes.
inline std::string readable_size(size_t bytes) {
  if (bytes <= 1024) return std::to_string(bytes) + " bytes";
  double size = static_cast<double>(bytes) / 1024;
  const char* unit = "KiB";
  for (const char* larger : {"MiB", "GiB"})
    if (size > 1024) size /= 1024, unit = larger;
  char text[40];
  std::snprintf(text, sizeof text, "%.2f %s", size, unit);
  return text;
}

// How much memory may be live: a ratio of what Metal recommends. 0: any.
class MemoryLimit {
 public:
  MemoryLimit() {
    const char* ratio = std::getenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO");
    set_ratio(ratio ? std::atof(ratio) : DEFAULT_RATIO);
  }
  void set_ratio(double ratio) { bytes_ = static_cast<size_t>(ratio * static_cast<double>(recommended_memory)); }
  void check(size_t bytes) const {
    TORCH_CHECK(bytes <= longest_buffer, "Invalid buffer size: ", readable_size(bytes));
    const auto used = static_cast<size_t>(meter.current());
    TORCH_CHECK(bytes_ == 0 || used + bytes <= bytes_, "MPS backend out of memory (MPS allocated: ", readable_size(used),
                ", other allocations: 0 bytes, max allowed: ", readable_size(bytes_), "). Tried to allocate ",
                readable_size(bytes),
                " on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory "
                "allocations (may cause system failure).");
  }

 private:
  static constexpr double DEFAULT_RATIO = 1.7;
  std::atomic<size_t> bytes_;
};

inline MemoryLimit memory_limit;

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, simulated_device};
    memory_limit.check(bytes);
    auto* block = new Block{c10::alloc_cpu(bytes), static_cast<int64_t>(bytes)};
    meter.add(block->bytes);
    // As floating point these bytes are NaN in every type, as integers -1: a kernel that leaves an output unwritten shows.
    if (poison_fresh_memory) std::memset(block->memory, 0xFF, bytes);
    return {block->memory, block, &release, simulated_device};
  }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

  // What torch.accelerator asks for. Nothing is cached and nothing is pending: memory comes from the host and goes back.
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { meter.reset_peak(); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      auto& total = (*bytes)[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
      total.current = meter.current();
      total.peak = meter.peak();
    }
    return stats;
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    const auto used = static_cast<size_t>(meter.current());
    return {used < recommended_memory ? recommended_memory - used : 0, recommended_memory};
  }

 private:
  struct Block {
    void* memory;
    int64_t bytes;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    if (!block) return;
    meter.remove(block->bytes);
    c10::free_cpu(block->memory);
    delete block;
  }
};

inline Allocator allocator;

// Device memory seen from the CPU: the same bytes, kept alive by the result.
inline c10::DataPtr as_cpu_memory(const c10::Storage& device_storage) {
  return {device_storage.mutable_data(), new c10::Storage(device_storage),
          [](void* context) { delete static_cast<c10::Storage*>(context); }, c10::Device(c10::kCPU)};
}

// What a CPU kernel has allocated, taken over as memory of the device: the same bytes, counted while they live.
inline c10::DataPtr as_device_memory(const c10::Storage& cpu_storage) {
  struct Adopted {
    c10::Storage storage;
    int64_t bytes;
  };
  memory_limit.check(cpu_storage.nbytes());
  auto* adopted = new Adopted{cpu_storage, static_cast<int64_t>(cpu_storage.nbytes())};
  meter.add(adopted->bytes);
  return {cpu_storage.mutable_data(), adopted,
          [](void* context) {
            auto* adopted = static_cast<Adopted*>(context);
            meter.remove(adopted->bytes);
            delete adopted;
          },
          simulated_device};
}

}  // namespace mps_simulator

// Events of the simulated device: time stamps of the host, since every operation is complete when its call returns.
#pragma once
#include <c10/util/Exception.h>

#include <chrono>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace mps_simulator {

inline double milliseconds_now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The numbered events of torch.mps.Event.
class EventPool {
 public:
  uint32_t acquire(bool timing) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (timing) timed_.insert(next_);
    return next_++;
  }
  void record(uint32_t event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    recorded_[event] = milliseconds_now();
  }
  void release(uint32_t event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    recorded_.erase(event);
    timed_.erase(event);
  }
  double elapsed(uint32_t start, uint32_t end) {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(timed_.count(start) && timed_.count(end) && recorded_.count(start) && recorded_.count(end),
                "Events were not created with argument 'enable_timing=True'");
    TORCH_CHECK(recorded_[end] > recorded_[start], "End event ", end, " was not recorded after start event ", start);
    return recorded_[end] - recorded_[start];
  }

 private:
  std::mutex mutex_;
  uint32_t next_ = 1;
  std::unordered_map<uint32_t, double> recorded_;
  std::unordered_set<uint32_t> timed_;
};

inline EventPool events;

}  // namespace mps_simulator

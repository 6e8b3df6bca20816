// Events of the simulated device: time stamps of the host, since every operation is complete when its call returns.
#pragma once
#include <c10/util/Exception.h>

#include <chrono>
#include <mutex>
#include <unordered_map>

namespace mps_simulator {

inline double milliseconds_now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The numbered events of torch.mps.Event.
class EventPool {
 public:
  uint32_t acquire() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return next_++;
  }
  void record(uint32_t event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    recorded_[event] = milliseconds_now();
  }
  void release(uint32_t event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    recorded_.erase(event);
  }
  double elapsed(uint32_t start, uint32_t end) {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(recorded_.count(start) && recorded_.count(end), "elapsed_time: both events must have been recorded");
    return recorded_[end] - recorded_[start];
  }

 private:
  std::mutex mutex_;
  uint32_t next_ = 1;
  std::unordered_map<uint32_t, double> recorded_;
};

inline EventPool events;

}  // namespace mps_simulator

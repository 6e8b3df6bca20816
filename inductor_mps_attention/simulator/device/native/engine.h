// The autograd engine counts the devices at the first backward of the process and gives each one its thread and queue. A
// backward may have run before this library was loaded; then the device's thread is started here.
#pragma once
#include <torch/csrc/autograd/engine.h>

#include "hooks.h"

namespace mps_simulator {

// Opens the engine's protected members, which are the same ones in every derived class.
struct EngineAccess : torch::autograd::Engine {
  static bool started_without_devices(torch::autograd::Engine& engine) {
    const auto& workers = engine.*(&EngineAccess::thread_pool_shared_);
    const auto& queues = engine.*(&EngineAccess::device_ready_queues_);
    return workers != nullptr && queues.empty();
  }
  static void start_threads(torch::autograd::Engine& engine) { (engine.*(&EngineAccess::start_device_threads))(); }
};

// In need of the hooks, which say how many devices there are.
inline const bool engine_knows_the_device = hooks_in_place && [] {
  auto& engine = torch::autograd::Engine::get_default_engine();
  if (EngineAccess::started_without_devices(engine)) EngineAccess::start_threads(engine);
  return true;
}();

}  // namespace mps_simulator

// The simulated "mps" device for builds of PyTorch without one, in one translation unit: PyTorch's headers take nearly all of
// the compile time, so each further unit would cost as much again. At the end, what Python calls.
#include "composites.h"
#include "engine.h"
#include "fallback.h"
#include "hooks.h"
#include "kernels.h"

TORCH_LIBRARY(mps_simulator, library) { library.def("cpu_view(Tensor(a) self) -> Tensor(a)"); }
TORCH_LIBRARY_IMPL(mps_simulator, MPS, library) {
  library.impl("cpu_view", [](const at::Tensor& tensor) { return mps_simulator::Aliases().to_cpu(tensor); });
}

extern "C" {
int64_t mps_simulator_peak_memory() { return mps_simulator::meter.peak(); }
void mps_simulator_reset_peak_memory() { mps_simulator::meter.reset_peak(); }
void mps_simulator_set_poison(int on) { mps_simulator::poison_fresh_memory = on != 0; }
void* mps_simulator_allocator() { return static_cast<c10::Allocator*>(&mps_simulator::allocator); }
void mps_simulator_add_supported_operator(const char* name) { mps_simulator::supported_operators.insert(name); }
void mps_simulator_run_whole(const char* name) {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::MPS, __FILE__, __LINE__);
  library.impl(name, torch::CppFunction::makeFromBoxedFunction<&mps_simulator::run_on_cpu>());
}
void mps_simulator_resize_storage(void* storage, int64_t bytes) {
  at::native::resize_bytes_cpu(static_cast<c10::StorageImpl*>(storage), bytes);
}
}

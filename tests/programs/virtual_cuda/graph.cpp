// at::cuda::CUDAGraph and at::cuda::sleep, under the symbol names of libtorch_cuda.

#include <cstdint>
#include <stdexcept>
#include <utility>

#include "recording.h"

// CUDA's enum; its name is part of the mangled symbol.
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };

namespace at::cuda {

using virtual_cuda::Machine;
using virtual_cuda::Recording;
using virtual_cuda::Stream;

using Pool = std::pair<unsigned long long, unsigned long long>;

struct __attribute__((visibility("default"))) CUDAGraph {
  explicit CUDAGraph(bool keep_graph);
  ~CUDAGraph();
  void capture_begin(Pool pool, cudaStreamCaptureMode mode);
  void capture_end();
  void replay();

 private:
  Recording recording_;
  bool is_captured_ = false;
};

CUDAGraph::CUDAGraph(bool) {}

CUDAGraph::~CUDAGraph() = default;

void CUDAGraph::capture_begin(Pool pool, cudaStreamCaptureMode) {
  Machine& machine = Machine::get();
  Stream& stream = machine.current_stream(machine.device());
  if (stream.id == 0) {
    throw std::runtime_error("CUDA graphs must be captured on a non-default stream.");
  }
  if (pool.first != 0 && pool.second != 0) {
    throw std::runtime_error("virtual CUDA: a pool of two numbers");
  }
  static std::uint64_t captures = 0;
  const std::uint64_t broken = machine.settings().broken_capture;
  recording_.is_broken = ++captures >= broken && broken > 0 && virtual_cuda::is_faulty(stream.device);
  recording_.begin(stream);
}

void CUDAGraph::capture_end() {
  recording_.end();
  is_captured_ = true;
}

void CUDAGraph::replay() {
  if (!is_captured_) {
    throw std::runtime_error("Called CUDAGraph::replay without a preceding successful capture.");
  }
  Machine& machine = Machine::get();
  recording_.replay(machine.current_stream(machine.device()));
}

__attribute__((visibility("default"))) Pool graph_pool_handle() {
  static unsigned long long last = 0;
  return {0, ++last};
}

// Takes the time of one kernel.
__attribute__((visibility("default"))) void sleep(std::int64_t) {
  Machine& machine = Machine::get();
  machine.run(machine.current_stream(machine.device()), "at::cuda::sleep", {});
}

}  // namespace at::cuda

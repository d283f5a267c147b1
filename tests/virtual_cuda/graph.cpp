// at::cuda::CUDAGraph and at::cuda::sleep by the names that libtorch_cuda exports. What kernels are is known by those who
// give them to a stream.

#include "graph.h"

#include <cstdint>
#include <stdexcept>
#include <utility>

namespace virtual_cuda {

void Recording::begin(Stream& origin) {
  origin_ = &origin;
  clocks_[&origin] = Clock();
  origin.recording = this;
}

void Recording::end() {
  for (const auto& [stream, clock] : clocks_) {
    stream->recording = nullptr;
  }
  for (const auto& event : events_) {
    event->recording = nullptr;
  }
  for (auto take_back = undo.rbegin(); take_back != undo.rend(); ++take_back) {
    (*take_back)();
  }
  undo.clear();
  if (is_broken) {
    throw std::runtime_error("CUDA error: operation failed due to a previous error during capture\n");
  }
  for (const auto& [stream, clock] : clocks_) {
    if (!clocks_[origin_].covers(clock)) {
      throw std::runtime_error("CUDA error: capturing stream has unjoined work\n");
    }
  }
}

void Recording::replay(Stream& launch) {
  Machine& machine = Machine::get();
  machine.log("replay of %zu kernels on stream %lld", steps_.size(), static_cast<long long>(launch.id));
  branches_[origin_] = &launch;
  for (const Step& step : steps_) {
    Stream*& branch = branches_[step.stream];
    if (branch == nullptr) {
      branch = &machine.new_stream(launch.device);
    }
    machine.set_current_stream(*branch);
    step.work(*branch);
  }
  machine.set_current_stream(launch);
}

void Recording::add(Stream& stream, Work work) {
  clocks_[&stream].advance(stream.number);
  steps_.push_back({&stream, std::move(work)});
}

void Recording::record(Event& event, Stream& stream) {
  const auto captured = std::make_shared<CapturedEvent>(CapturedEvent{this, clocks_[&stream], Event()});
  events_.push_back(captured);
  event.captured = captured;
  event.device = stream.device;
  add(stream, [captured](Stream& replayed) { Machine::get().record(captured->event, replayed); });
}

void Recording::wait(Stream& stream, CapturedEvent& event) {
  stream.recording = this;
  clocks_[&stream].join(event.clock);
  add(stream, [&event](Stream& replayed) { Machine::get().wait(replayed, event.event); });
}

}  // namespace virtual_cuda

// CUDA's, of which the name is in the exported one.
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
  recording_.is_broken = machine.settings().breaks_captures;
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

// Takes as long as any kernel.
__attribute__((visibility("default"))) void sleep(std::int64_t) {
  Machine& machine = Machine::get();
  machine.run(machine.current_stream(machine.device()), "at::cuda::sleep", {});
}

}  // namespace at::cuda

#include "recording.h"

#include <stdexcept>
#include <utility>

namespace virtual_cuda {

namespace {

thread_local Recording* recording_of_thread = nullptr;

}  // namespace

Recording* Recording::of_thread() { return recording_of_thread; }

void Recording::begin(Stream& origin) {
  origin_ = &origin;
  clocks_[&origin] = Clock();
  origin.recording = this;
  recording_of_thread = this;
}

void Recording::end() {
  recording_of_thread = nullptr;
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
  // Events are not nodes of a graph and need no join.
  steps_.push_back({&stream, [captured](Stream& replayed) { Machine::get().record(captured->event, replayed); }});
}

void Recording::wait(Stream& stream, CapturedEvent& event) {
  stream.recording = this;
  clocks_[&stream].join(event.clock);
  steps_.push_back({&stream, [&event](Stream& replayed) { Machine::get().wait(replayed, event.event); }});
}

}  // namespace virtual_cuda

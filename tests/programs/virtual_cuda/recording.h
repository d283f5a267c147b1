// Work of captured streams, which a replay runs again in the same memory.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "machine.h"

namespace virtual_cuda {

// An event recorded in a captured stream: an edge of the graph, which cannot be queried.
struct CapturedEvent {
  // Null after the capture.
  Recording* recording;
  Clock clock;
  // Recorded again by each replay.
  Event event;
};

class Recording {
 public:
  // Takes the stream of the replay.
  using Work = std::function<void(Stream&)>;

  // The capture of this thread, or null.
  static Recording* of_thread();

  void begin(Stream& origin);
  // Throws if the graph cannot be replayed.
  void end();
  void replay(Stream& launch);

  void add(Stream& stream, Work work);
  void record(Event& event, Stream& stream);
  // Adds the stream to the capture if it is not captured yet.
  void wait(Stream& stream, CapturedEvent& event);
  std::size_t size() const { return steps_.size(); }

  // Kernels do run during the capture, because their outputs must be known. These functions restore the memory they wrote,
  // or fill it with NaN, when the capture ends.
  std::vector<std::function<void()>> undo;
  // True after an operation that cannot be captured.
  bool is_broken = false;

 private:
  struct Step {
    Stream* stream;
    Work work;
  };

  Stream* origin_ = nullptr;
  // Work that precedes the next work of each captured stream.
  std::map<Stream*, Clock> clocks_;
  std::vector<Step> steps_;
  std::vector<std::shared_ptr<CapturedEvent>> events_;
  // Streams of the replay, by stream of the capture.
  std::map<Stream*, Stream*> branches_;
};

}  // namespace virtual_cuda

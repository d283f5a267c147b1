// What captured streams are given: kept, and run again in the same memory by whoever replays it.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "machine.h"

namespace virtual_cuda {

// An event that was recorded in a captured stream: an edge of the graph, and no mark that anybody else may ask for.
struct CapturedEvent {
  // Null when the capture is over.
  Recording* recording;
  Clock clock;
  // Of a replay.
  Event event;
};

class Recording {
 public:
  // Its work, in the stream that replays it.
  using Work = std::function<void(Stream&)>;

  void begin(Stream& origin);
  // Throws where it cannot be replayed.
  void end();
  void replay(Stream& launch);

  void add(Stream& stream, Work work);
  void record(Event& event, Stream& stream);
  // The stream is captured from now on, if it was not.
  void wait(Stream& stream, CapturedEvent& event);
  std::size_t size() const { return steps_.size(); }

  // A capture runs nothing. To know what a kernel makes it is run all the same, so that each has this to take back what it
  // wrote: to values from before, or to NaN.
  std::vector<std::function<void()>> undo;
  // Something was asked for that no graph can hold.
  bool is_broken = false;

 private:
  struct Step {
    Stream* stream;
    Work work;
  };

  Stream* origin_ = nullptr;
  // What comes before the next work of each captured stream.
  std::map<Stream*, Clock> clocks_;
  std::vector<Step> steps_;
  std::vector<std::shared_ptr<CapturedEvent>> events_;
  // Streams of the replays, by those of the capture.
  std::map<Stream*, Stream*> branches_;
};

}  // namespace virtual_cuda

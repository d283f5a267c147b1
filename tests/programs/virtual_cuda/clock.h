// Vector clocks: the work of all streams that precedes a point, independent of speed.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace virtual_cuda {

// Number of a stream within the process.
using StreamNumber = std::size_t;

// For every stream, the amount of its work that precedes this point.
class Clock {
 public:
  std::uint64_t of(StreamNumber stream) const { return stream < ticks_.size() ? ticks_[stream] : 0; }

  std::uint64_t advance(StreamNumber stream) {
    reach(stream);
    return ++ticks_[stream];
  }

  bool covers(const Clock& other) const {
    for (StreamNumber stream = 0; stream < other.ticks_.size(); ++stream) {
      if (of(stream) < other.ticks_[stream]) {
        return false;
      }
    }
    return true;
  }

  void join(const Clock& other) {
    ticks_.resize(std::max(ticks_.size(), other.ticks_.size()));
    for (StreamNumber stream = 0; stream < other.ticks_.size(); ++stream) {
      ticks_[stream] = std::max(ticks_[stream], other.ticks_[stream]);
    }
  }

 private:
  void reach(StreamNumber stream) { ticks_.resize(std::max(ticks_.size(), stream + 1)); }

  std::vector<std::uint64_t> ticks_;
};

// A unit of work in a stream.
struct Point {
  StreamNumber stream = 0;
  std::uint64_t tick = 0;
  // Name of the kernel; valid as long as the process lives.
  const char* kernel = nullptr;

  bool is_before(const Clock& clock) const { return clock.of(stream) >= tick; }
};

}  // namespace virtual_cuda

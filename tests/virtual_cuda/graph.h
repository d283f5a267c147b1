// What a captured stream is given: kept, and run again in the same memory by whoever replays it. One stream at a time.

#pragma once

#include <functional>
#include <vector>

namespace virtual_cuda {

struct Stream;

struct Recording {
  // A kernel each, which runs in the stream of the replay.
  std::vector<std::function<void(Stream&)>> kernels;
  // A capture runs nothing. To know what a kernel makes it is run all the same, so that each has this to take back what it
  // wrote: to values from before, or to NaN.
  std::vector<std::function<void()>> undo;
  // Something was asked for that no graph can hold.
  bool is_broken = false;
};

}  // namespace virtual_cuda

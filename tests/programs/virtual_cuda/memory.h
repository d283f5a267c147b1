// Who touched which bytes of a device last, and whether the next to touch them comes after. Not for who owns them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "clock.h"

namespace virtual_cuda {

// Bytes that a kernel reads, or writes.
struct Access {
  std::uintptr_t begin;
  std::uintptr_t end;
  bool writes;
};

// Two kernels that touch the same bytes, one of them writing, in no order.
struct Race {
  Access access;
  Point earlier;
  bool earlier_writes;
};

// The bytes of every block that is allocated now.
class Memory {
 public:
  // `by` is where the stream that allocates is: what used the block before comes before that.
  void allocated(std::uintptr_t begin, std::size_t bytes, Point by);

  // What still used the block on another stream: whatever gets these bytes next, in the order of `clock`, would meet it.
  std::optional<Race> freed(std::uintptr_t begin, const Clock& clock);

  // The block that has `place` in it, from begin to end; zeros if there is none.
  std::pair<std::uintptr_t, std::uintptr_t> block_of(std::uintptr_t place) const;
  bool is_empty() const { return blocks_.empty(); }

  // Notes an access by a kernel at `point`, whose stream is at `clock`; what it is in a race with. Memory that is in no
  // block is the host's.
  std::optional<Race> touch(const Access& access, Point point, const Clock& clock);

 private:
  struct Cell {
    std::uintptr_t end;
    Point write;
    // One of each stream, since the write.
    std::vector<Point> reads;
  };
  using Cells = std::map<std::uintptr_t, Cell>;

  // Cuts the cell that has `place` inside it into two.
  void split(std::uintptr_t place);
  // The point in `cell` that `clock` has not seen; reads too where they matter.
  static std::optional<Race> unseen(const Access& access, const Cell& cell, const Clock& clock);
  static void note_read(Cell& cell, Point point);

  Cells cells_;
  std::map<std::uintptr_t, std::uintptr_t> blocks_;
};

}  // namespace virtual_cuda

// Last accesses to the bytes of a device, and detection of unordered accesses.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "clock.h"

namespace virtual_cuda {

// Bytes that a kernel reads or writes.
struct Access {
  std::uintptr_t begin;
  std::uintptr_t end;
  bool writes;
};

// Two unordered kernels that access the same bytes, at least one of them writing.
struct Race {
  Access access;
  Point earlier;
  bool earlier_writes;
};

// The bytes of every allocated block.
class Memory {
 public:
  // `by` is the position of the allocating stream: earlier uses of the block precede it.
  void allocated(std::uintptr_t begin, std::size_t bytes, Point by);

  // Returns a use of the block on another stream that is not ordered before `clock`: the next owner of these bytes
  // would race with it.
  std::optional<Race> freed(std::uintptr_t begin, const Clock& clock);

  // Returns begin and end of the block that contains `place`; zeros if there is none.
  std::pair<std::uintptr_t, std::uintptr_t> block_of(std::uintptr_t place) const;
  bool is_empty() const { return blocks_.empty(); }

  // Records an access by a kernel at `point`, whose stream is at `clock`; returns the race, if any. Memory outside of
  // all blocks belongs to the host.
  std::optional<Race> touch(const Access& access, Point point, const Clock& clock);

 private:
  struct Cell {
    std::uintptr_t end;
    Point write;
    // One for each stream, since the write.
    std::vector<Point> reads;
  };
  using Cells = std::map<std::uintptr_t, Cell>;

  // Splits the cell that contains `place` at that address.
  void split(std::uintptr_t place);
  // Returns the point in `cell` that does not precede `clock`; considers reads if the access writes.
  static std::optional<Race> unseen(const Access& access, const Cell& cell, const Clock& clock);
  static void note_read(Cell& cell, Point point);

  Cells cells_;
  std::map<std::uintptr_t, std::uintptr_t> blocks_;
};

}  // namespace virtual_cuda

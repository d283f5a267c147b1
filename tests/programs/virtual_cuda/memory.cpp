#include "memory.h"

#include <iterator>

namespace virtual_cuda {

void Memory::allocated(std::uintptr_t begin, std::size_t bytes, Point by) {
  if (bytes > 0) {
    blocks_[begin] = begin + bytes;
    cells_[begin] = Cell{begin + bytes, by, {}};
  }
}

std::optional<Race> Memory::freed(std::uintptr_t begin, const Clock& clock) {
  const auto block = blocks_.find(begin);
  if (block == blocks_.end()) {
    return std::nullopt;
  }
  const Access reuse{begin, block->second, /*writes=*/true};
  std::optional<Race> race;
  auto cell = cells_.lower_bound(begin);
  while (cell != cells_.end() && cell->first < reuse.end) {
    if (!race) {
      race = unseen(reuse, cell->second, clock);
    }
    cell = cells_.erase(cell);
  }
  blocks_.erase(block);
  return race;
}

std::pair<std::uintptr_t, std::uintptr_t> Memory::block_of(std::uintptr_t place) const {
  const auto after = blocks_.upper_bound(place);
  if (after == blocks_.begin() || place >= std::prev(after)->second) {
    return {0, 0};
  }
  return *std::prev(after);
}

std::optional<Race> Memory::touch(const Access& access, Point point, const Clock& clock) {
  split(access.begin);
  split(access.end);
  std::optional<Race> race;
  auto cell = cells_.lower_bound(access.begin);
  while (cell != cells_.end() && cell->first < access.end) {
    if (!race) {
      race = unseen(access, cell->second, clock);
    }
    if (access.writes) {
      cell->second.write = point;
      cell->second.reads.clear();
    } else {
      note_read(cell->second, point);
    }
    // Merges cells that one kernel wrote, so that their number does not grow.
    const auto before = cell == cells_.begin() ? cells_.end() : std::prev(cell);
    const bool continues = access.writes && before != cells_.end() && before->first >= access.begin &&
                           before->second.end == cell->first && blocks_.count(cell->first) == 0;
    if (continues) {
      before->second.end = cell->second.end;
      cell = cells_.erase(cell);
    } else {
      ++cell;
    }
  }
  return race;
}

void Memory::split(std::uintptr_t place) {
  auto after = cells_.lower_bound(place);
  if (after == cells_.begin()) {
    return;
  }
  const auto cell = std::prev(after);
  if (cell->second.end > place) {
    Cell rest = cell->second;
    cell->second.end = place;
    cells_.emplace_hint(after, place, std::move(rest));
  }
}

std::optional<Race> Memory::unseen(const Access& access, const Cell& cell, const Clock& clock) {
  if (!cell.write.is_before(clock)) {
    return Race{access, cell.write, /*earlier_writes=*/true};
  }
  if (access.writes) {
    for (const Point& read : cell.reads) {
      if (!read.is_before(clock)) {
        return Race{access, read, /*earlier_writes=*/false};
      }
    }
  }
  return std::nullopt;
}

void Memory::note_read(Cell& cell, Point point) {
  for (Point& read : cell.reads) {
    if (read.stream == point.stream) {
      read = point;
      return;
    }
  }
  cell.reads.push_back(point);
}

}  // namespace virtual_cuda

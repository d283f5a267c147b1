#include "access_log.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "machine.h"

namespace virtual_cuda {

AccessLog::AccessLog(const Image& image, std::vector<std::uintptr_t> pointers)
    : image_(image), has_memory_(Machine::get().has_memory()), shadows_(image.shared_end - image.shared_begin) {
  std::sort(pointers.begin(), pointers.end());
  pointers.erase(std::unique(pointers.begin(), pointers.end()), pointers.end());
  for (const std::uintptr_t pointer : pointers) {
    if (!regions_.empty() && regions_.back().end > pointer) {
      regions_.back().end = pointer;
    }
    if (const std::uintptr_t end = Machine::get().block_of(pointer).second; end != 0) {
      regions_.push_back({pointer, end, end});
    }
  }
}

void AccessLog::next_phase(int line) {
  ++phase_;
  line_ = line;
}

std::string AccessLog::touch(std::uintptr_t address, std::size_t bytes, bool writes, unsigned thread) {
  const auto shared = reinterpret_cast<std::uintptr_t>(image_.shared_begin);
  if (address - shared < shadows_.size()) {
    return touch_shared(address - shared, bytes, writes, thread);
  }
  const auto is_between = [&](const char* begin, const char* end) {
    return address >= reinterpret_cast<std::uintptr_t>(begin) && address < reinterpret_cast<std::uintptr_t>(end);
  };
  // Without memory of a GPU, this is a test on memory of the host.
  if (!has_memory_ || is_between(image_.begin, image_.end)) {
    return "";
  }
  Region* const region = find(address, bytes);
  if (region == nullptr) {
    char text[128];
    std::snprintf(
        text, sizeof(text), "thread %u %s %zu bytes at 0x%" PRIxPTR ", in no memory of a GPU", thread,
        writes ? "writes" : "reads", bytes, address);
    return text;
  }
  Access& access = writes ? region->written : region->read;
  access.begin = std::min(access.begin, address);
  access.end = std::max(access.end, address + bytes);
  return "";
}

AccessLog::Region* AccessLog::find(std::uintptr_t address, std::size_t bytes) {
  const auto has = [&](const Region& region) { return address >= region.begin && address < region.end; };
  if (last_ < regions_.size() && has(regions_[last_]) && address + bytes <= regions_[last_].block_end) {
    return &regions_[last_];
  }
  auto found = std::find_if(regions_.begin(), regions_.end(), has);
  if (found == regions_.end()) {
    // By a pointer that the kernel read from memory, or before its own.
    const auto [begin, end] = Machine::get().block_of(address);
    if (end == 0) {
      return nullptr;
    }
    const auto is_after = [&](const Region& region) { return region.begin > address; };
    const auto after = std::find_if(regions_.begin(), regions_.end(), is_after);
    const std::uintptr_t limit = after == regions_.end() ? end : std::min(end, after->begin);
    found = regions_.insert(after, {begin, limit, end});
  }
  last_ = found - regions_.begin();
  return address + bytes <= found->block_end ? &*found : nullptr;
}

std::string AccessLog::touch_shared(std::size_t begin, std::size_t bytes, bool writes, unsigned thread) {
  for (std::size_t place = begin; place < std::min(begin + bytes, shadows_.size()); ++place) {
    Shadow& shadow = shadows_[place];
    if (shadow.write_phase == phase_ && shadow.writer != thread) {
      return race(place, thread, shadow.writer);
    }
    const bool is_read = shadow.read_phase == phase_;
    if (writes) {
      if (is_read && (shadow.has_readers || shadow.reader != thread)) {
        return race(place, thread, shadow.reader);
      }
      shadow.write_phase = phase_;
      shadow.writer = static_cast<std::uint16_t>(thread);
    } else {
      shadow.has_readers = is_read && (shadow.has_readers || shadow.reader != thread);
      shadow.read_phase = phase_;
      if (!shadow.has_readers) {
        shadow.reader = static_cast<std::uint16_t>(thread);
      }
    }
  }
  return "";
}

std::string AccessLog::race(std::size_t place, unsigned thread, unsigned other) const {
  return "threads " + std::to_string(other) + " and " + std::to_string(thread) + " touch byte " + std::to_string(place) +
         " of the shared memory, one of them writing, with no barrier between, after " +
         (line_ == 0 ? "the kernel's begin" : "the barrier of line " + std::to_string(line_));
}

std::vector<Access> AccessLog::accesses() const {
  std::vector<Access> accesses;
  for (const Region& region : regions_) {
    for (const Access& access : {region.read, region.written}) {
      if (access.begin < access.end) {
        accesses.push_back(access);
      }
    }
  }
  return accesses;
}

}  // namespace virtual_cuda

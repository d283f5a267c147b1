#include "access_log.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "machine.h"

namespace virtual_cuda {

AccessLog::AccessLog(const Image& image, std::vector<Pointer> pointers)
    : image_(image), has_memory_(Machine::get().has_memory()), shared_(image.shared_end - image.shared_begin) {
  std::sort(pointers.begin(), pointers.end(), [](const Pointer& one, const Pointer& other) {
    return one.address != other.address ? one.address < other.address : one.element_bytes < other.element_bytes;
  });
  std::vector<std::uintptr_t> written;
  for (const Pointer& pointer : pointers) {
    const std::uintptr_t end = Machine::get().block_of(pointer.address).second;
    if (end != 0 && !pointer.is_const) {
      written.push_back(end);
    }
    if (end == 0 || (!regions_.empty() && regions_.back().begin == pointer.address)) {
      continue;
    }
    if (!regions_.empty() && regions_.back().end > pointer.address) {
      regions_.back().end = pointer.address;
    }
    regions_.push_back({pointer.address, end, end, pointer.element_bytes});
  }
  for (Region& region : regions_) {
    region.is_shadowed = std::find(written.begin(), written.end(), region.block_end) != written.end();
  }
}

void AccessLog::begin_block(unsigned threads) {
  fences_.assign(threads, 0);
  fence_numbers_.assign(threads, 0);
  atomics_.emplace_back();
  first_phase_ = ++phase_;
  blocks_.push_back(static_cast<std::uint32_t>(atomics_.size() - 1));
  line_ = 0;
}

void AccessLog::pass_barrier(int line) {
  ++phase_;
  blocks_.push_back(blocks_.back());
  line_ = line;
}

void AccessLog::fence(unsigned thread) {
  fences_[thread] = phase_;
  fence_numbers_[thread] = ++number_;
}

bool AccessLog::touch(std::uintptr_t address, std::size_t bytes, Touch touch, unsigned thread) {
  const auto is_between = [&](const char* begin, const char* end) {
    return address >= reinterpret_cast<std::uintptr_t>(begin) && address < reinterpret_cast<std::uintptr_t>(end);
  };
  std::vector<Shadow>* shadows = nullptr;
  std::size_t first = 0, last = 0;
  if (is_between(image_.shared_begin, image_.shared_end)) {
    shadows = &shared_;
    first = address - reinterpret_cast<std::uintptr_t>(image_.shared_begin);
    last = std::min(first + bytes, shared_.size()) - 1;
  } else if (!has_memory_ || is_between(image_.begin, image_.end)) {
    // If no GPU memory is allocated, this is a test on host memory.
    return true;
  } else if (Region* const region = find(address, bytes)) {
    if (touch != Touch::WRITE) {
      region->read.begin = std::min(region->read.begin, address);
      region->read.end = std::max(region->read.end, address + bytes);
    }
    if (touch != Touch::READ) {
      region->written.begin = std::min(region->written.begin, address);
      region->written.end = std::max(region->written.end, address + bytes);
    }
    if (!region->is_shadowed) {
      return true;
    }
    shadows = &region->shadows;
    first = (address - region->begin) / region->element_bytes;
    last = (address - region->begin + bytes - 1) / region->element_bytes;
    if (last >= shadows->size()) {
      shadows->resize(last + 1);
    }
  } else {
    char text[128];
    std::snprintf(
        text, sizeof(text), "thread %u %s %zu bytes at 0x%" PRIxPTR ", in no memory of a GPU", thread,
        touch == Touch::READ ? "reads" : "writes", bytes, address);
    error_ = text;
    return false;
  }
  // Every block has its own shared memory.
  const bool is_shared = shadows == &shared_;
  const Phase since = is_shared ? first_phase_ : 1;
  for (std::size_t element = first; element <= last; ++element) {
    if (!note((*shadows)[element], touch, thread, since)) {
      const bool is_same_block = blocks_[other_phase_] == blocks_[phase_];
      // Only the last of several readers is known, which may be this thread.
      const bool is_unknown = is_same_block && other_ == thread;
      error_ = (is_unknown ? "other threads" : "thread " + std::to_string(other_)) +
               (is_same_block ? "" : " of another block") + " and thread " + std::to_string(thread) + " touch " +
               (is_shared ? "byte " : "element ") + std::to_string(element) +
               (is_shared ? " of the shared memory" : " of the same tensor") +
               ", one of them writing, in no order; the second one after " +
               (line_ == 0 ? "the kernel's begin" : "the barrier of line " + std::to_string(line_));
      return false;
    }
  }
  if (touch == Touch::ATOMIC) {
    atomics_.back() = {phase_, thread, fences_, ++number_};
  }
  return true;
}

bool AccessLog::note(Shadow& shadow, Touch touch, unsigned thread, Phase since) {
  const bool reads = touch != Touch::WRITE, writes = touch != Touch::READ;
  // Two atomic operations need no order. Two writes may have the same value: another order of threads shows if they
  // differ.
  if (reads && shadow.write_phase >= since && !(touch == Touch::ATOMIC && shadow.is_atomic) &&
      !is_before(shadow.write_phase, shadow.writer, thread, /*is_read_after_write=*/!shadow.is_atomic)) {
    other_phase_ = shadow.write_phase;
    other_ = shadow.writer;
    return false;
  }
  if (writes && shadow.read_phase >= since && touch != Touch::ATOMIC) {
    const bool is_own = shadow.reader == thread && !shadow.has_readers;
    if (shadow.read_phase == phase_ ? !is_own : !is_before(shadow.read_phase, shadow.reader, thread, false)) {
      other_phase_ = shadow.read_phase;
      other_ = shadow.reader;
      return false;
    }
  }
  if (writes) {
    shadow.write_phase = phase_;
    shadow.writer = static_cast<std::uint16_t>(thread);
    shadow.is_atomic = touch == Touch::ATOMIC;
  } else {
    shadow.has_readers = shadow.read_phase == phase_ && (shadow.has_readers || shadow.reader != thread);
    shadow.read_phase = phase_;
    shadow.reader = static_cast<std::uint16_t>(thread);
  }
  return true;
}

bool AccessLog::is_before(Phase phase, unsigned other, unsigned thread, bool is_read_after_write) const {
  if (blocks_[phase] == blocks_[phase_]) {
    return phase < phase_ || other == thread;
  }
  const Atomic& released = atomics_[blocks_[phase]];
  const Atomic& acquired = atomics_.back();
  const bool is_released = phase < released.phase || (phase == released.phase && other == released.thread);
  const bool is_acquired = acquired.phase != 0 && (acquired.phase < phase_ || acquired.thread == thread);
  if (!is_released || !is_acquired || !is_read_after_write) {
    return is_released && is_acquired;
  }
  // First the writers, or those that released after a barrier; then the readers.
  const bool is_visible = released.fences[other] >= phase || released.fences[released.thread] > phase;
  return is_visible && fence_numbers_[thread] > acquired.number;
}

AccessLog::Region* AccessLog::find(std::uintptr_t address, std::size_t bytes) {
  const auto has = [&](const Region& region) { return address >= region.begin && address < region.end; };
  if (last_ < regions_.size() && has(regions_[last_]) && address + bytes <= regions_[last_].block_end) {
    return &regions_[last_];
  }
  auto found = std::find_if(regions_.begin(), regions_.end(), has);
  if (found == regions_.end()) {
    // Accessed by a pointer that the kernel read from memory, or before the start of its own.
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

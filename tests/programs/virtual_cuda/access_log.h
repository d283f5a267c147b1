// Memory accesses by the threads of a launch: the accessed bytes of each of its tensors, and unordered accesses of
// threads to the same bytes. Called by the compiler's instrumentation for every access to memory.
//
// Threads of a block are ordered by barriers. Blocks are ordered by an atomic operation of each with __threadfence:
// what the first block wrote before its operation, the second may read after its own.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel_image.h"
#include "memory.h"

namespace virtual_cuda {

// A pointer parameter of a launch.
struct Pointer {
  std::uintptr_t address;
  // Size of an element that it points to.
  std::size_t element_bytes;
  bool is_const;
};

class AccessLog {
 public:
  AccessLog(const Image& image, std::vector<Pointer> pointers);

  // Starts a block of this many threads; blocks run one after the other.
  void begin_block(unsigned threads);
  // All threads of the block have reached the barrier on this line.
  void pass_barrier(int line);
  // A thread of the block calls __threadfence.
  void fence(unsigned thread);

  // Records an access by `thread` of the block; returns false if it is invalid.
  bool touch(std::uintptr_t address, std::size_t bytes, Touch touch, unsigned thread);

  const std::string& error() const { return error_; }

  // Returns all accesses of device memory.
  std::vector<Access> accesses() const;

 private:
  // Interval between two barriers of a block, counted over all blocks from 1; 0 is before the launch.
  using Phase = std::uint32_t;

  // Last accesses to an element.
  struct Shadow {
    Phase write_phase = 0;
    Phase read_phase = 0;
    std::uint16_t writer = 0;
    std::uint16_t reader = 0;
    // True if other threads than `reader` have read in `read_phase`.
    bool has_readers = false;
    bool is_atomic = false;
  };

  // Memory from a pointer to the next one or to the end of its block, and its accesses.
  struct Region {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::uintptr_t block_end;
    std::size_t element_bytes = 1;
    // False if no pointer of the launch allows writing.
    bool is_shadowed = false;
    // One for each element, up to the last one accessed.
    std::vector<Shadow> shadows = {};
    Access read{UINTPTR_MAX, 0, /*writes=*/false};
    Access written{UINTPTR_MAX, 0, /*writes=*/true};
  };

  // The last atomic operation of a block.
  struct Atomic {
    Phase phase = 0;
    unsigned thread = 0;
    // Last phase with a fence for each thread; 0 is none.
    std::vector<Phase> fences;
    std::uint64_t number = 0;
  };

  // Records an access by this block's thread to an element, ignoring accesses before phase `since`; returns false for
  // a race.
  bool note(Shadow& shadow, Touch touch, unsigned thread, Phase since);
  // Returns true if the access of `other` in `phase` precedes the current access of `thread`; with
  // `is_read_after_write`, it must also be visible.
  bool is_before(Phase phase, unsigned other, unsigned thread, bool is_read_after_write) const;
  // Returns null if the bytes are not in GPU memory.
  Region* find(std::uintptr_t address, std::size_t bytes);

  const Image& image_;
  const bool has_memory_;
  // Sorted, not overlapping.
  std::vector<Region> regions_;
  std::size_t last_ = 0;
  // Shadows of shared memory.
  std::vector<Shadow> shared_;

  Phase phase_ = 0;
  // First phase of this block.
  Phase first_phase_ = 0;
  int line_ = 0;
  // Block of every phase; last atomic operation of every block.
  std::vector<std::uint32_t> blocks_{0};
  std::vector<Atomic> atomics_{1};
  // One for each thread of this block.
  std::vector<Phase> fences_;
  std::vector<std::uint64_t> fence_numbers_;
  // Counter of fences and atomic operations.
  std::uint64_t number_ = 0;

  // The other access of the last race found.
  Phase other_phase_ = 0;
  unsigned other_ = 0;
  std::string error_;
};

}  // namespace virtual_cuda

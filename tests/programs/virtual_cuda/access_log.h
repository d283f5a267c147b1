// What the threads of a launch touch: the bytes of each of its tensors, and threads that touch the same bytes in no order.
// Fed by the compiler's instrumentation, which calls for every access to memory.
//
// Threads of a block are ordered by barriers. Blocks are ordered by an atomic operation of each, with __threadfence: what
// the first one wrote before, the second one may read after.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel_image.h"
#include "memory.h"

namespace virtual_cuda {

// A parameter of a launch that points to something.
struct Pointer {
  std::uintptr_t address;
  // Of what it points to.
  std::size_t element_bytes;
  bool is_const;
};

class AccessLog {
 public:
  AccessLog(const Image& image, std::vector<Pointer> pointers);

  // A block of this many threads begins; blocks run one after the other.
  void begin_block(unsigned threads);
  // Its threads have met at the barrier of this line.
  void pass_barrier(int line);
  // A thread of the block calls __threadfence.
  void fence(unsigned thread);

  // Notes an access by `thread` of the block; false if it is wrong.
  bool touch(std::uintptr_t address, std::size_t bytes, Touch touch, unsigned thread);

  // What was wrong.
  const std::string& error() const { return error_; }

  // Of device memory, by all threads.
  std::vector<Access> accesses() const;

 private:
  // From one barrier of a block to the next, counted over all blocks from 1; 0 is before the launch.
  using Phase = std::uint32_t;

  // Last accesses to an element.
  struct Shadow {
    Phase write_phase = 0;
    Phase read_phase = 0;
    std::uint16_t writer = 0;
    std::uint16_t reader = 0;
    // In `read_phase`, more threads than `reader`.
    bool has_readers = false;
    bool is_atomic = false;
  };

  // From a pointer to the next one, or to the end of its block; what was read and written of it.
  struct Region {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::uintptr_t block_end;
    std::size_t element_bytes = 1;
    // False if no pointer of the launch could write it.
    bool is_shadowed = false;
    // Of its elements, as far as they were touched.
    std::vector<Shadow> shadows = {};
    Access read{UINTPTR_MAX, 0, /*writes=*/false};
    Access written{UINTPTR_MAX, 0, /*writes=*/true};
  };

  // The last atomic operation of a block.
  struct Atomic {
    Phase phase = 0;
    unsigned thread = 0;
    // Of each thread, when it was; 0 is never.
    std::vector<Phase> fences;
    std::uint64_t number = 0;
  };

  // An access of this block's thread to an element, of which nothing counts that was before phase `since`; false if it is a
  // race.
  bool note(Shadow& shadow, Touch touch, unsigned thread, Phase since);
  // Returns true if what `other` did in `phase` comes before what `thread` does now; with `is_read_after_write`, it must be
  // visible too.
  bool is_before(Phase phase, unsigned other, unsigned thread, bool is_read_after_write) const;
  // Null if the bytes are in no memory of a GPU.
  Region* find(std::uintptr_t address, std::size_t bytes);

  const Image& image_;
  const bool has_memory_;
  // Sorted, apart.
  std::vector<Region> regions_;
  std::size_t last_ = 0;
  // Of shared memory.
  std::vector<Shadow> shared_;

  Phase phase_ = 0;
  // Of this block.
  Phase first_phase_ = 0;
  int line_ = 0;
  // Of every phase, its block; of every block, its last atomic operation.
  std::vector<std::uint32_t> blocks_{0};
  std::vector<Atomic> atomics_{1};
  // Of each thread of this block.
  std::vector<Phase> fences_;
  std::vector<std::uint64_t> fence_numbers_;
  // Of fences and atomic operations.
  std::uint64_t number_ = 0;

  // The other one of the race found last.
  Phase other_phase_ = 0;
  unsigned other_ = 0;
  std::string error_;
};

}  // namespace virtual_cuda

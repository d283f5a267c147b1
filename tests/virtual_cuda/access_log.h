// What the threads of a launch touch: the bytes of each of its tensors, and threads of a block that touch the same shared
// memory in no order. Fed by the compiler's instrumentation, which calls for every access to memory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel_image.h"
#include "memory.h"

namespace virtual_cuda {

class AccessLog {
 public:
  // `pointers` are the kernel's parameters that point to something.
  AccessLog(const Image& image, std::vector<std::uintptr_t> pointers);

  // After this, accesses are ordered with those before: a barrier of this line, or the begin of a block (0).
  void next_phase(int line);

  // Notes an access by `thread` of the block; returns what is wrong with it, or an empty text.
  std::string touch(std::uintptr_t address, std::size_t bytes, bool writes, unsigned thread);

  // Of device memory, by all threads.
  std::vector<Access> accesses() const;

 private:
  // From a pointer to the next one, or to the end of its block; what was read and written of it.
  struct Region {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::uintptr_t block_end;
    Access read{UINTPTR_MAX, 0, /*writes=*/false};
    Access written{UINTPTR_MAX, 0, /*writes=*/true};
  };
  // Who touched a byte of shared memory last, and in which phase.
  struct Shadow {
    std::uint32_t write_phase = 0;
    std::uint32_t read_phase = 0;
    std::uint16_t writer = 0;
    std::uint16_t reader = 0;
    bool has_readers = false;
  };

  std::string touch_shared(std::size_t begin, std::size_t bytes, bool writes, unsigned thread);
  std::string race(std::size_t place, unsigned thread, unsigned other) const;
  // Null if the bytes are in no memory of a GPU.
  Region* find(std::uintptr_t address, std::size_t bytes);

  const Image& image_;
  const bool has_memory_;
  // Sorted, apart.
  std::vector<Region> regions_;
  std::size_t last_ = 0;
  std::vector<Shadow> shadows_;
  std::uint32_t phase_ = 0;
  int line_ = 0;
};

}  // namespace virtual_cuda

// Interface between a compiled kernel and its launch: the exports of a "cubin" of the virtual GPUs.

#pragma once

namespace virtual_cuda {

// Incremented whenever this file or its semantics change: a cubin of another version is rejected.
constexpr int IMAGE_VERSION = 2;

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

struct Parameter {
  unsigned long bytes;
  // Size of an element that a pointer points to; 0 if not a pointer.
  unsigned long element_bytes;
  bool is_const;
};

struct Kernel {
  // Runs one thread; `values` are the addresses of the parameters' values.
  void (*call)(void* const* values);
  const Parameter* parameters;
  int count;
};

enum class Touch { READ, WRITE, ATOMIC };

struct Hooks {
  Dim3* thread;
  Dim3* block;
  Dim3* block_size;
  Dim3* grid_size;
  // Set before a kernel of the image runs. `touch` is called before every access to memory.
  void (*barrier)(int line);
  void (*fence)();
  void (*touch)(const void* address, unsigned long bytes, Touch touch);
};

// Exported by every image.
struct Image {
  int version;
  Hooks* hooks;
  // Address range of the library.
  char* begin;
  char* end;
  // Memory of all its `__shared__` variables.
  char* shared_begin;
  char* shared_end;
};

constexpr const char* IMAGE_SYMBOL = "virtual_cuda_image";
constexpr const char* KERNEL_SYMBOL_PREFIX = "virtual_cuda_export_";

}  // namespace virtual_cuda

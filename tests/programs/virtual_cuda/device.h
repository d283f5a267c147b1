// CUDA C for the CPU: the device features that kernels use. libnvrtc.so.13 (nvrtc.cpp) includes this header before
// the kernels' source. The threads of a block run in turn on one core (threads.cpp), blocks run one after the other.

#pragma once

#include <math.h>
#include <string.h>

#include <utility>

#include "kernel_image.h"

#define KERNEL(name)                                   \
  struct virtual_cuda_kernel_##name; /* nvrtc.cpp */ \
  static void name
#define KERNEL_AT_ONCE(blocks, name) KERNEL(name)
#define DEVICE static inline __attribute__((unused))
// In a separate section, which is cleared for every block.
#define __shared__ static __attribute__((section("virtual_cuda_shared")))
// As large as the largest possible launch.
#define SHARED_MEMORY(name, bytes) __shared__ __attribute__((aligned(128))) unsigned char name[bytes]
#define __restrict__ __restrict
// Threads that wait at different barriers are an error: on a GPU they would hang.
#define __syncthreads() virtual_cuda_barrier(__LINE__)

typedef virtual_cuda::Dim3 dim3;

// The running thread.
static dim3 threadIdx, blockIdx, blockDim, gridDim;

static virtual_cuda::Hooks virtual_cuda_hooks = {&threadIdx, &blockIdx, &blockDim, &gridDim, nullptr, nullptr, nullptr};

static inline void virtual_cuda_barrier(int line) { virtual_cuda_hooks.barrier(line); }

DEVICE void __threadfence() { virtual_cuda_hooks.fence(); }

#define VIRTUAL_CUDA_UNCHECKED __attribute__((no_sanitize("thread")))

// Called by the instrumentation of the compiler's thread sanitizer before every access to memory.
#define VIRTUAL_CUDA_TOUCHES(function, bytes, touch_)                                             \
  extern "C" VIRTUAL_CUDA_UNCHECKED __attribute__((used)) void __tsan_##function(void* address) { \
    virtual_cuda_hooks.touch(address, bytes, virtual_cuda::Touch::touch_);                        \
  }
#define VIRTUAL_CUDA_TOUCHES_OF(bytes)                         \
  VIRTUAL_CUDA_TOUCHES(read##bytes, bytes, READ)              \
  VIRTUAL_CUDA_TOUCHES(unaligned_read##bytes, bytes, READ)    \
  VIRTUAL_CUDA_TOUCHES(volatile_read##bytes, bytes, READ)     \
  VIRTUAL_CUDA_TOUCHES(write##bytes, bytes, WRITE)              \
  VIRTUAL_CUDA_TOUCHES(unaligned_write##bytes, bytes, WRITE)    \
  VIRTUAL_CUDA_TOUCHES(volatile_write##bytes, bytes, WRITE)
VIRTUAL_CUDA_TOUCHES_OF(1)
VIRTUAL_CUDA_TOUCHES_OF(2)
VIRTUAL_CUDA_TOUCHES_OF(4)
VIRTUAL_CUDA_TOUCHES_OF(8)
VIRTUAL_CUDA_TOUCHES_OF(16)
extern "C" {
VIRTUAL_CUDA_UNCHECKED __attribute__((used)) void __tsan_read_range(void* address, unsigned long bytes) {
  virtual_cuda_hooks.touch(address, bytes, virtual_cuda::Touch::READ);
}
VIRTUAL_CUDA_UNCHECKED __attribute__((used)) void __tsan_write_range(void* address, unsigned long bytes) {
  virtual_cuda_hooks.touch(address, bytes, virtual_cuda::Touch::WRITE);
}
VIRTUAL_CUDA_UNCHECKED __attribute__((used)) void __tsan_func_entry(void*) {}
VIRTUAL_CUDA_UNCHECKED __attribute__((used)) void __tsan_func_exit(void*) {}
VIRTUAL_CUDA_UNCHECKED __attribute__((used)) void __tsan_init() {}
}

// For global memory.
template <typename T>
VIRTUAL_CUDA_UNCHECKED static T atomicAdd(T* place, T value) {
  virtual_cuda_hooks.touch(place, sizeof(T), virtual_cuda::Touch::ATOMIC);
  const T before = *place;
  *place += value;
  return before;
}

// Copies to shared memory started by a thread, by group. They are performed when the thread waits for them, but could
// take place as soon as they are started: other threads must not access the memory from then on.
struct VirtualCudaCopies {
  struct Copy {
    void* to;
    // Null to write zeros.
    const void* from;
    unsigned bytes;
    int group;
  };
  static constexpr int MOST = 128;

  int count, group;
  Copy copies[MOST];
};
static VirtualCudaCopies virtual_cuda_copies[1024];

VIRTUAL_CUDA_UNCHECKED static VirtualCudaCopies& virtual_cuda_own_copies() {
  return virtual_cuda_copies[(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x];
}

VIRTUAL_CUDA_UNCHECKED static void virtual_cuda_begin_copy(void* to, const void* from, unsigned bytes, bool is_there) {
  VirtualCudaCopies& own = virtual_cuda_own_copies();
  if (own.count == VirtualCudaCopies::MOST) {
    __builtin_trap();
  }
  virtual_cuda_hooks.touch(to, bytes, virtual_cuda::Touch::WRITE);
  if (is_there) {
    virtual_cuda_hooks.touch(from, bytes, virtual_cuda::Touch::READ);
  }
  own.copies[own.count++] = {to, is_there ? from : nullptr, bytes, own.group};
}

DEVICE void copy_16(void* shared, const void* place, bool is_there) { virtual_cuda_begin_copy(shared, place, 16, is_there); }
DEVICE void copy_8(void* shared, const void* place, bool is_there) { virtual_cuda_begin_copy(shared, place, 8, is_there); }

VIRTUAL_CUDA_UNCHECKED static inline void end_copies() { ++virtual_cuda_own_copies().group; }

template <int GROUPS>
VIRTUAL_CUDA_UNCHECKED static void wait_for_copies() {
  VirtualCudaCopies& own = virtual_cuda_own_copies();
  int left = 0;
  for (int i = 0; i < own.count; ++i) {
    const VirtualCudaCopies::Copy copy = own.copies[i];
    if (copy.group >= own.group - GROUPS) {
      own.copies[left++] = copy;
      continue;
    }
    virtual_cuda_hooks.touch(copy.to, copy.bytes, virtual_cuda::Touch::WRITE);
    if (copy.from != nullptr) {
      memcpy(copy.to, copy.from, copy.bytes);
    } else {
      memset(copy.to, 0, copy.bytes);
    }
  }
  own.count = left;
}

template <typename T>
DEVICE T load_written(const T* place) { return *place; }

DEVICE float bits_to_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

DEVICE unsigned float_to_bits(float value) {
  unsigned bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Rounds to the nearest 16-bit value, ties to even; NaN as in the GPU's conversions.
DEVICE unsigned short float_to_bfloat16(float value) {
  const unsigned bits = float_to_bits(value);
  return value != value ? 0x7fff : static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

DEVICE float bfloat16_to_float(unsigned short bits) { return bits_to_float(static_cast<unsigned>(bits) << 16); }

DEVICE unsigned short float_to_half(float value) {
  const unsigned bits = float_to_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) {
    return 0x7fff;
  }
  if (size >= 0x477ff000) {  // 65520 rounds to infinity.
    return static_cast<unsigned short>(sign | 0x7c00);
  }
  if (size < 0x38800000) {  // Below 2^-14 the steps are 2^-24: those of a float at 0.5.
    return static_cast<unsigned short>(sign | (float_to_bits(bits_to_float(size) + 0.5f) - 0x3f000000));
  }
  return static_cast<unsigned short>(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
}

DEVICE float half_to_float(unsigned short half) {
  const unsigned sign = (half & 0x8000u) << 16, size = half & 0x7fffu;
  if (size < 0x400) {
    return bits_to_float(sign | float_to_bits(static_cast<float>(size) * 0x1p-24f));
  }
  return bits_to_float(sign | ((size << 13) + (size < 0x7c00 ? 0x38000000 : 0x70000000)));
}

namespace virtual_cuda {

template <typename T>
struct Described {
  static constexpr Parameter value = {sizeof(T), 0, false};
};
template <typename T>
struct Described<T*> {
  static constexpr Parameter value = {sizeof(T*), sizeof(T), false};
};
template <typename T>
struct Described<const T*> {
  static constexpr Parameter value = {sizeof(T*), sizeof(T), true};
};

template <auto FUNCTION>
struct Exported;

template <typename... P, void (*FUNCTION)(P...)>
struct Exported<FUNCTION> {
  VIRTUAL_CUDA_UNCHECKED static void call(void* const* values) {
    virtual_cuda_own_copies().count = virtual_cuda_own_copies().group = 0;
    call(values, std::index_sequence_for<P...>());
  }

  static constexpr Parameter PARAMETERS[sizeof...(P)] = {Described<P>::value...};
  static constexpr int COUNT = sizeof...(P);

 private:
  template <std::size_t... I>
  VIRTUAL_CUDA_UNCHECKED static void call(void* const* values, std::index_sequence<I...>) {
    FUNCTION(*static_cast<P*>(values[I])...);
  }
};

}  // namespace virtual_cuda

// Set by the linker: bounds of the library, and of the section, which are null if no kernel uses shared memory.
extern "C" __attribute__((visibility("hidden"))) char __ehdr_start[], _end[];
extern "C" __attribute__((weak, visibility("hidden"))) char __start_virtual_cuda_shared[], __stop_virtual_cuda_shared[];

#define VIRTUAL_CUDA_EXPORT extern "C" __attribute__((visibility("default"))) const

VIRTUAL_CUDA_EXPORT virtual_cuda::Image virtual_cuda_image = {
    virtual_cuda::IMAGE_VERSION, &virtual_cuda_hooks, __ehdr_start, _end, __start_virtual_cuda_shared, __stop_virtual_cuda_shared};

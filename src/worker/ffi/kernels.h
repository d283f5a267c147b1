// Launches of the kernels of ../kernels, which ffi/kernels.rs compiles and loads.

#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace kernels {

// Pointers to kernels by the names that they have in the sources. One set for each element type.
struct Functions {
  void* statistics;
  // By what follows the normalization: nothing, ReLU, or the sum with a shortcut and ReLU.
  void* apply[3];
  void* gradients[3];
  void* gradients_two;
  void* input_gradient[3];
  void* apply_pool;
  // By the number of gradients that come in, less one.
  void* gradients_pool[2];
  void* input_gradient_pool[2];
  void* max_pool;
  void* max_pool_gradient;
};

// The kernels for elements of `type`, or null if they were not loaded.
const Functions* functions(at::ScalarType type);

// Number of elements of `type` in the 16 bytes that a thread of a kernel loads at once.
inline int64_t packet_width(at::ScalarType type) { return 16 / static_cast<int64_t>(at::elementSize(type)); }

// Launch shape over `rows` rows of `channels` values: see batch_norm.cu.
struct Grid {
  Grid(int64_t rows, int64_t channels, at::ScalarType type);

  uint32_t slices, parts, packets, height;
};

// Launches `function` on the current stream of `device`; `arguments` are the addresses of its parameters.
void launch(void* function, const Grid& grid, at::Device device, void** arguments);

template <typename... Arguments>
void launch(void* function, const Grid& grid, at::Device device, Arguments... arguments) {
  void* addresses[] = {&arguments...};
  launch(function, grid, device, addresses);
}

// Zeros, one for each slice of any grid: kernels that count finished blocks leave them as they were.
uint32_t* tickets(at::Device device);

}  // namespace kernels

// Launches of the kernels of ../../kernels, which ffi/cuda/kernels.rs compiles and loads.

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
  void* update_check;
  void* update;
};

// The kernels for elements of `type`, or null if they were not loaded.
const Functions* functions(at::ScalarType type);

// Number of elements of `type` in the 16 bytes that a thread of a kernel loads at once.
inline int64_t packet_width(at::ScalarType type) { return 16 / static_cast<int64_t>(at::elementSize(type)); }

// Blocks and threads of a launch, two dimensions of each, and the bytes of dynamic shared memory.
struct Grid {
  uint32_t slices, parts, packets, height, shared = 0;
};

// Grid over `rows` rows of `channels` values: see batch_norm.cu.
Grid row_grid(int64_t rows, int64_t channels, at::ScalarType type);

// Blocks that the GPU runs at the same time, two on each multiprocessor.
int64_t blocks_at_once();

// Launches `function` on the current stream of `device`; `arguments` are the addresses of its parameters.
void launch(void* function, const Grid& grid, at::Device device, void** arguments);

template <typename... Arguments>
void launch(void* function, const Grid& grid, at::Device device, Arguments... arguments) {
  void* addresses[] = {&arguments...};
  launch(function, grid, device, addresses);
}

// Kernels of pointwise.cu, for 64 inputs. For fp32 there are only those with `finish` in the name and `gradient_matrix`.
struct PointwiseFunctions {
  void* statistics;
  void* sum;
  void* statistics_finish;
  // Linear, and the sum with a shortcut and ReLU.
  void* apply[2];
  // By whether there is a mask, and a second gradient.
  void* gradients[2][2];
  void* gradient_finish;
  void* gradient_matrix;
  void* input_gradient;
};

// The kernels for elements of `type`, or null if they were not loaded.
const PointwiseFunctions* pointwise_functions(at::ScalarType type);

// Bytes of dynamic shared memory of the pointwise kernels.
constexpr uint32_t kStatisticsBytes = 49152, kApplyBytes = 98304, kGradientsBytes = 92160, kInputGradientBytes = 58880;

// Zeros, one for each slice of any grid: kernels that count finished blocks leave them as they were.
uint32_t* tickets(at::Device device);

}  // namespace kernels

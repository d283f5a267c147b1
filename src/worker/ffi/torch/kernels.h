// Launches of the kernels in ../../kernels, which ffi/cuda/kernels.rs compiles and loads.

#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace kernels {

// Pointers to kernels, by their names in the sources. One set for each element type.
struct Functions {
  void* statistics;
  // Indexed by what follows the normalization: nothing, ReLU, or the addition of a shortcut and ReLU.
  void* apply[3];
  void* gradients[3];
  void* gradients_two;
  void* input_gradient[3];
  void* apply_pool;
  // Indexed by the number of incoming gradients, minus one.
  void* gradients_pool[2];
  void* input_gradient_pool[2];
  void* max_pool;
  void* max_pool_gradient;
  void* update_check;
  void* update;
};

// Returns the kernels for elements of `type`, or null if they were not loaded.
const Functions* functions(at::ScalarType type);

// Number of elements of `type` in the 16 bytes that a thread of a kernel loads at once.
inline int64_t packet_width(at::ScalarType type) { return 16 / static_cast<int64_t>(at::elementSize(type)); }

// Blocks and threads of a launch, two dimensions each, and the bytes of dynamic shared memory.
struct Grid {
  uint32_t slices, parts, packets, height, shared = 0;
};

// Returns the grid for `rows` rows of `channels` values: see batch_norm.cu.
Grid row_grid(int64_t rows, int64_t channels, at::ScalarType type);

// Returns the number of blocks that the GPU runs concurrently, two per multiprocessor.
int64_t blocks_at_once();

// Launches `function` on the current stream of `device`; `arguments` are the addresses of its parameters.
void launch(void* function, const Grid& grid, at::Device device, void** arguments);

template <typename... Arguments>
void launch(void* function, const Grid& grid, at::Device device, Arguments... arguments) {
  void* addresses[] = {&arguments...};
  launch(function, grid, device, addresses);
}

// Kernels of pointwise.cu for 64 inputs. For fp32 only those with `finish` in their names and `gradient_matrix`
// exist.
struct PointwiseFunctions {
  void* statistics;
  void* sum;
  void* statistics_finish;
  // Linear, and the addition of a shortcut with ReLU.
  void* apply[2];
  // Indexed by the presence of a mask, and of a second gradient.
  void* gradients[2][2];
  void* gradient_finish;
  void* gradient_matrix;
  void* input_gradient;
};

// Returns the kernels for elements of `type`, or null if they were not loaded.
const PointwiseFunctions* pointwise_functions(at::ScalarType type);

// Bytes of dynamic shared memory of the pointwise kernels.
constexpr uint32_t kStatisticsBytes = 49152, kApplyBytes = 98304, kGradientsBytes = 92160, kInputGradientBytes = 58880;

// Returns zeros, one for each slice of any grid. Kernels that count finished blocks reset them to zero.
uint32_t* tickets(at::Device device);

}  // namespace kernels

// The table of loaded kernels, and their launches through the driver.

#include "kernels.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "guarded.h"

namespace {

// cuLaunchKernel of cuda.h.
using Launch = int (*)(
    void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
    unsigned shared_bytes, void* stream, void** parameters, void** extra);

// Makes the context of the process's GPU current in a thread without one; returns the driver's status.
using MakeCurrent = int (*)();

struct Driver {
  Launch launch;
  MakeCurrent make_current;
  int64_t processors;
};

Driver driver{};
std::map<at::ScalarType, kernels::Functions> loaded;
std::map<at::ScalarType, kernels::PointwiseFunctions> loaded_pointwise;

template <typename Functions>
const Functions* found(const std::map<at::ScalarType, Functions>& all, at::ScalarType type) {
  const auto place = all.find(type);
  return place == all.end() ? nullptr : &place->second;
}

constexpr int64_t kThreads = 256;
// Measured on an H100 (scripts/dev/gpu_kernels.py, part batch_norm): 8 packets (128 bytes) of a row per block and two
// blocks per multiprocessor are the fastest for every shape of ResNet-50, or within 2 % of it.
constexpr int64_t kPackets = 8;
constexpr int64_t kBlocksPerProcessor = 2;
constexpr int64_t kMostSlices = 65536;

}  // namespace

namespace kernels {

const Functions* functions(at::ScalarType type) { return found(loaded, type); }

const PointwiseFunctions* pointwise_functions(at::ScalarType type) { return found(loaded_pointwise, type); }

int64_t blocks_at_once() { return kBlocksPerProcessor * driver.processors; }

Grid row_grid(int64_t rows, int64_t channels, at::ScalarType type) {
  const int64_t all = channels / packet_width(type), packets = std::min(kPackets, all);
  int64_t height = 1;
  while (2 * height * packets <= kThreads) height *= 2;
  const int64_t slices = (all + packets - 1) / packets;
  const int64_t parts = std::min(std::max<int64_t>(1, blocks_at_once() / slices), (rows + height - 1) / height);
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  return {number(slices), number(parts), number(packets), number(height)};
}

void launch(void* function, const Grid& grid, at::Device device, void** arguments) {
  // libtorch's backward thread gets its context with its first call of the CUDA runtime, which may come later than
  // this.
  thread_local const int status = driver.make_current();
  TORCH_CHECK(status == 0, "cannot make the GPU context current: CUresult ", status);
  const auto* cuda = c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
  void* stream = cuda->getStreamNativeHandle(cuda->getStream(device));
  const int result = driver.launch(
      function, grid.slices, grid.parts, 1, grid.packets, grid.height, 1, grid.shared, stream,
      arguments, nullptr);
  TORCH_CHECK(result == 0, "cannot launch a fused kernel: CUresult ", result);
}

uint32_t* tickets(at::Device device) {
  // A stream runs one kernel after the other, and ranks compute on one stream. Never freed: the driver may be
  // unloaded when the process exits.
  static const auto* zeros = new at::Tensor(at::zeros({kMostSlices}, at::TensorOptions(device).dtype(at::kInt)));
  return static_cast<uint32_t*>(zeros->mutable_data_ptr());
}

}  // namespace kernels

extern "C" {

// Sets the kernels of one element type (0 half, 1 bfloat16, 2 float), or those of pointwise.cu if `is_pointwise`.
// `find` returns the kernel with a name, for launches with `shared_bytes` of dynamic shared memory, or null.
char* ringmark_set_kernels(
    int element, int is_pointwise, void* (*find)(void* context, const char* name, unsigned shared_bytes), void* context,
    Launch launch, MakeCurrent make_current, int64_t processors) {
  return guarded([&] {
    const at::ScalarType type = std::array{at::kHalf, at::kBFloat16, at::kFloat}.at(element);
    const auto get = [&](const std::string& name, unsigned shared_bytes = 0) {
      void* function = find(context, name.c_str(), shared_bytes);
      TORCH_CHECK(function != nullptr, "missing compiled kernel ", name);
      return function;
    };
    driver = Driver{launch, make_current, processors};
    if (is_pointwise) {
      const std::string start = "pointwise_";
      kernels::PointwiseFunctions functions{};
      functions.statistics_finish = get(start + "statistics_finish");
      functions.gradient_finish = get(start + "gradient_finish");
      functions.gradient_matrix = get(start + "gradient_matrix");
      if (type != at::kFloat) {
        functions.statistics = get(start + "statistics_64", kernels::kStatisticsBytes);
        functions.sum = get(start + "sum");
        functions.apply[0] = get(start + "apply_linear_64", kernels::kApplyBytes);
        functions.apply[1] = get(start + "apply_sum_relu_64", kernels::kApplyBytes);
        for (const bool has_mask : {false, true}) {
          for (const bool is_two : {false, true}) {
            const std::string name = std::string("gradients") + (has_mask ? "_relu" : "") + (is_two ? "_two" : "");
            functions.gradients[has_mask][is_two] = get(start + name, kernels::kGradientsBytes);
          }
        }
        functions.input_gradient = get(start + "input_gradient", kernels::kInputGradientBytes);
      }
      loaded_pointwise[type] = functions;
      return;
    }
    const std::string norm = "batch_norm_";
    kernels::Functions functions{};
    functions.statistics = get(norm + "statistics");
    const char* after[] = {"", "_relu", "_sum_relu"};
    for (int i = 0; i < 3; ++i) {
      functions.apply[i] = get(norm + "apply" + after[i]);
      functions.gradients[i] = get(norm + "gradients" + after[i]);
      // After an addition the gradient before the ReLU is already in memory.
      functions.input_gradient[i] = get(norm + "input_gradient" + (i == 1 ? "_relu" : ""));
    }
    functions.gradients_two = get(norm + "gradients_sum_relu_two");
    functions.apply_pool = get(norm + "apply_relu_max_pool");
    for (int i = 0; i < 2; ++i) {
      const std::string two = i == 0 ? "" : "_two";
      functions.gradients_pool[i] = get(norm + "gradients_max_pool" + two);
      functions.input_gradient_pool[i] = get(norm + "input_gradient_max_pool" + two);
    }
    functions.max_pool = get("max_pool");
    functions.max_pool_gradient = get("max_pool_gradient");
    functions.update_check = get("update_check");
    functions.update = get("update");
    loaded[type] = functions;
  });
}

}  // extern "C"

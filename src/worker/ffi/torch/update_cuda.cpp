// Update of all weights by the kernels of ../kernels/update.cu.

#include <algorithm>

#include "autograd_cuda.h"
#include "guarded.h"
#include "update.h"

namespace {

using kernels::in;
using kernels::out;

// Returns the element type of the kernels that update these weights.
at::ScalarType element_of(const at::Tensor* rounded) { return rounded == nullptr ? at::kFloat : rounded->scalar_type(); }

bool is_flat(const at::Tensor& tensor, int64_t count) {
  return tensor.is_cuda() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.numel() == count;
}

kernels::Grid grid_of(int64_t count) {
  // Four values per thread; enough blocks to fill every multiprocessor.
  const int64_t blocks = std::min((count + 1023) / 1024, 8 * kernels::blocks_at_once());
  return {static_cast<uint32_t>(blocks), 1, 256, 1};
}

}  // namespace

extern "C" {

// Returns 1 if the kernels update these flat tensors; `rounded` may be null.
int ringmark_has_update_kernel(at::Tensor* weights, at::Tensor* gradients, at::Tensor* momenta, at::Tensor* rounded) {
  const int64_t count = weights->numel();
  return count > 0 && is_flat(*weights, count) && is_flat(*gradients, count) && is_flat(*momenta, count) &&
      (rounded == nullptr || (rounded->is_contiguous() && rounded->numel() == count)) &&
      kernels::functions(element_of(rounded)) != nullptr;
}

// Performs one Nesterov step, and writes the rounded copy of the weights if it is not null. `scale` and `found_inf`
// are both null without loss scaling. If a gradient is not finite, `found_inf` is set to 1 and nothing else changes.
char* ringmark_update(
    at::Tensor* weights, at::Tensor* gradients, at::Tensor* momenta, at::Tensor* rounded, at::Tensor* scale,
    at::Tensor* found_inf, SgdStep step) {
  return guarded([&] {
    const auto& functions = *kernels::functions(element_of(rounded));
    const auto count = static_cast<uint64_t>(weights->numel());
    const auto grid = grid_of(weights->numel());
    const auto device = weights->device();
    const at::Tensor none;
    const auto or_none = [&](const at::Tensor* tensor) -> const at::Tensor& { return tensor == nullptr ? none : *tensor; };
    if (found_inf != nullptr) {
      found_inf->zero_();
      kernels::launch(functions.update_check, grid, device, in(*gradients), in(*scale), out(*found_inf), count);
    }
    kernels::launch(
        functions.update, grid, device, out(*weights), in(*gradients), out(*momenta), out(or_none(rounded)), in(or_none(scale)),
        in(or_none(found_inf)), count, static_cast<float>(step.learning_rate), static_cast<float>(step.momentum),
        static_cast<float>(step.weight_decay));
  });
}

}  // extern "C"

// Shared by the autograd functions of the CUDA kernels: arguments, and outputs with two readers.

#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "kernels.h"

namespace kernels {

using torch::autograd::variable_list;

inline const void* in(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }
inline void* out(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

// Returns an uninitialized fp32 tensor on the device of `like`.
inline at::Tensor floats(const at::Tensor& like, at::IntArrayRef shape) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}

inline at::Tensor in_kernel_order(const at::Tensor& gradient, at::ScalarType type) {
  return gradient.contiguous(at::MemoryFormat::ChannelsLast).to(type);
}

// Returns the gradients of an output's two readers; the second is undefined if only one of them has a gradient.
inline std::pair<at::Tensor, at::Tensor> incoming(const variable_list& gradients, at::ScalarType type) {
  at::Tensor first = gradients[0], second = gradients.size() > 1 ? gradients[1] : at::Tensor();
  if (!first.defined()) std::swap(first, second);
  TORCH_CHECK(first.defined(), "backward of a layer without an output gradient");
  first = in_kernel_order(first, type);
  if (second.defined()) second = in_kernel_order(second, type);
  return {first, second};
}

// Returns the same storage twice: autograd then passes the gradients of the two readers to backward separately.
inline variable_list outputs(const at::Tensor& y, bool two) {
  return two ? variable_list{y, y.variable_data()} : variable_list{y};
}

}  // namespace kernels

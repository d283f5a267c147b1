// Batch normalization on the CPU and on CUDA, and what both take.

#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>

// Vectors of one batch normalization, fp32, one number a channel, and its constants.
struct BatchNormVectors {
  at::Tensor weight, bias, running_mean, running_variance;
  double momentum, epsilon;
};

// A square window that moves over the pixels.
struct PoolWindow {
  int64_t kernel, stride, padding;
};

// The result, twice if `two`: it then has two readers, whose gradients backward adds itself.
torch::autograd::variable_list batch_norm_cuda(
    const at::Tensor& x, const std::optional<at::Tensor>& shortcut, const BatchNormVectors& vectors, bool relu, bool two);

// The same with ReLU and the largest value of each window behind it.
torch::autograd::variable_list batch_norm_max_pool_cuda(
    const at::Tensor& x, const BatchNormVectors& vectors, const PoolWindow& window, bool two);

// Returns true if pointwise_norm_cuda takes `x` and the weight of a 1x1 convolution, with or without a shortcut.
bool has_pointwise_kernels(const at::Tensor& x, const at::Tensor& weight, bool has_shortcut);

// The 1x1 convolution of `x` by `weight`, normalized; with a shortcut, its sum and ReLU.
torch::autograd::variable_list pointwise_norm_cuda(
    const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& shortcut, const BatchNormVectors& vectors,
    bool two);

// fp32, precise to the last bits: sums are fp32 inside a block of threads and fp64 over the blocks.
at::Tensor channel_means_cuda(const at::Tensor& x);

at::Tensor max_pool_cuda(const at::Tensor& x, const PoolWindow& window);

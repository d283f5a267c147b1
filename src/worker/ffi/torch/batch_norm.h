// Batch normalization on the CPU and on CUDA, and their shared types.

#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>

// Vectors of one batch normalization, fp32, one value per channel, and its constants.
struct BatchNormVectors {
  at::Tensor weight, bias, running_mean, running_variance;
  double momentum, epsilon;
};

// A square pooling window.
struct PoolWindow {
  int64_t kernel, stride, padding;
};

// Returns the result, twice if `two`: it then has two readers, whose gradients are added in backward.
torch::autograd::variable_list batch_norm_cuda(
    const at::Tensor& x, const std::optional<at::Tensor>& shortcut, const BatchNormVectors& vectors, bool relu, bool two);

// The same, followed by ReLU and max pooling.
torch::autograd::variable_list batch_norm_max_pool_cuda(
    const at::Tensor& x, const BatchNormVectors& vectors, const PoolWindow& window, bool two);

// Returns true if pointwise_norm_cuda supports `x` and the weight of a 1x1 convolution, with or without a shortcut.
bool has_pointwise_kernels(const at::Tensor& x, const at::Tensor& weight, bool has_shortcut);

// The 1x1 convolution of `x` with `weight`, normalized; with a shortcut, followed by its addition and ReLU.
torch::autograd::variable_list pointwise_norm_cuda(
    const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& shortcut, const BatchNormVectors& vectors,
    bool two);

// Means in fp32, correct to the last bits: sums are fp32 within a block of threads and fp64 over the blocks.
at::Tensor channel_means_cuda(const at::Tensor& x);

at::Tensor max_pool_cuda(const at::Tensor& x, const PoolWindow& window);

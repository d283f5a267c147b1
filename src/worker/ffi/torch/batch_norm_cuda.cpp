// Batch normalization with the operations that follow it on CUDA, by the kernels in ../kernels. Counterpart of
// batch_norm.cpp, which has the formulas.

#include "batch_norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <utility>
#include <vector>

#include "autograd_cuda.h"

namespace {

// Must match the kernels' declaration.
struct Shape {
  int rows;
  int channels;
};

struct PoolShape {
  int height, width, channels;
  int pooled_height, pooled_width;
  int kernel, stride, padding;
};

enum After { kNothing, kRelu, kSumAndRelu };

using Tensors = torch::autograd::variable_list;
using Context = torch::autograd::AutogradContext;
using kernels::floats;
using kernels::in;
using kernels::incoming;
using kernels::in_kernel_order;
using kernels::out;
using kernels::outputs;

Shape shape_of(const at::Tensor& images) {
  const int64_t channels = images.size(1);
  return {static_cast<int>(images.numel() / channels), static_cast<int>(channels)};
}

kernels::Grid grid_of(const at::Tensor& images) {
  const Shape shape = shape_of(images);
  return kernels::row_grid(shape.rows, shape.channels, images.scalar_type());
}

// Sums of a grid's blocks, before the last block adds them.
at::Tensor partial_sums(const at::Tensor& images, const kernels::Grid& grid) {
  return floats(images, {grid.parts, 2, images.size(1)});
}

at::Tensor statistics(const at::Tensor& x, const BatchNormVectors& vectors) {
  const auto grid = grid_of(x);
  const auto result = floats(x, {4, x.size(1)}), partial = partial_sums(x, grid);
  kernels::launch(
      kernels::functions(x.scalar_type())->statistics, grid, x.device(), in(x), in(vectors.weight), in(vectors.bias),
      out(vectors.running_mean), out(vectors.running_variance), out(result), out(partial), kernels::tickets(x.device()),
      shape_of(x), static_cast<float>(vectors.momentum), static_cast<float>(vectors.epsilon));
  return result;
}

struct BatchNormCuda : torch::autograd::Function<BatchNormCuda> {
  static Tensors forward(
      Context* context, const at::Tensor& x, const std::optional<at::Tensor>& shortcut, const at::Tensor& weight,
      const at::Tensor& bias, const BatchNormVectors& vectors, bool relu, bool two) {
    const auto& functions = *kernels::functions(x.scalar_type());
    const After after = shortcut.has_value() ? kSumAndRelu : relu ? kRelu : kNothing;
    const auto statistics = ::statistics(x, vectors), y = at::empty_like(x);
    at::Tensor mask;
    if (after == kSumAndRelu) {
      const int64_t packets = x.numel() / kernels::packet_width(x.scalar_type());
      mask = at::empty({packets}, x.options().dtype(at::kByte).memory_format(std::nullopt));
      kernels::launch(
          functions.apply[after], grid_of(x), x.device(), in(x), in(*shortcut), in(statistics), out(y), out(mask), shape_of(x));
    } else {
      kernels::launch(functions.apply[after], grid_of(x), x.device(), in(x), in(statistics), out(y), shape_of(x));
    }
    context->save_for_backward({x, weight, statistics, mask});
    context->saved_data["after"] = static_cast<int64_t>(after);
    context->set_materialize_grads(false);
    return outputs(y, two);
  }

  static Tensors backward(Context* context, Tensors gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &statistics = saved[2], &mask = saved[3];
    const auto after = static_cast<After>(context->saved_data["after"].toInt());
    const auto& functions = *kernels::functions(x.scalar_type());
    auto [dy, dy2] = incoming(gradients, x.scalar_type());
    const auto grid = grid_of(x);
    const auto device = x.device();
    const auto shape = shape_of(x);
    const auto dx = at::empty_like(x), dweight = at::empty_like(weight), dbias = at::empty_like(weight);
    const auto coefficients = floats(x, {3, x.size(1)}), partial = partial_sums(x, grid);
    auto* tickets = kernels::tickets(device);
    at::Tensor dz;
    if (after == kSumAndRelu) {
      dz = at::empty_like(x);
      if (dy2.defined()) {
        kernels::launch(
            functions.gradients_two, grid, device, in(dy), in(dy2), in(mask), in(x), in(weight), in(statistics), out(dz),
            out(dweight), out(dbias), out(coefficients), out(partial), tickets, shape);
      } else {
        kernels::launch(
            functions.gradients[after], grid, device, in(dy), in(mask), in(x), in(weight), in(statistics), out(dz),
            out(dweight), out(dbias), out(coefficients), out(partial), tickets, shape);
      }
    } else {
      if (dy2.defined()) dy = dy + dy2;
      kernels::launch(
          functions.gradients[after], grid, device, in(dy), in(x), in(weight), in(statistics), out(dweight), out(dbias),
          out(coefficients), out(partial), tickets, shape);
    }
    kernels::launch(
        functions.input_gradient[after], grid, device, in(dz.defined() ? dz : dy), in(x), in(statistics), in(coefficients),
        out(dx), shape);
    return {dx, dz, dweight, dbias, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

PoolShape pool_shape(const at::Tensor& x, const PoolWindow& window) {
  const auto pooled = [&](int64_t size) { return (size + 2 * window.padding - window.kernel) / window.stride + 1; };
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  return {number(x.size(2)), number(x.size(3)), number(x.size(1)), number(pooled(x.size(2))), number(pooled(x.size(3))),
          number(window.kernel), number(window.stride), number(window.padding)};
}

// Returns uninitialized pooled images and the indices of their values.
std::pair<at::Tensor, at::Tensor> empty_pooled(const at::Tensor& x, const PoolShape& shape) {
  const auto options = x.options().memory_format(at::MemoryFormat::ChannelsLast);
  const std::array<int64_t, 4> sizes{x.size(0), x.size(1), shape.pooled_height, shape.pooled_width};
  return {at::empty(sizes, options), at::empty(sizes, options.dtype(at::kByte))};
}

void save_window(Context* context, const PoolWindow& window) {
  context->saved_data["window"] = std::vector<int64_t>{window.kernel, window.stride, window.padding};
}

PoolShape saved_shape(Context* context, const at::Tensor& x) {
  const auto window = context->saved_data["window"].toIntVector();
  return pool_shape(x, PoolWindow{window[0], window[1], window[2]});
}

struct BatchNormMaxPool : torch::autograd::Function<BatchNormMaxPool> {
  static Tensors forward(
      Context* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
      const BatchNormVectors& vectors, const PoolWindow& window, bool two) {
    const auto statistics = ::statistics(x, vectors);
    const auto shape = pool_shape(x, window);
    const auto [y, index] = empty_pooled(x, shape);
    kernels::launch(
        kernels::functions(x.scalar_type())->apply_pool, grid_of(y), x.device(), in(x), in(statistics), out(y), out(index),
        shape_of(y).rows, shape);
    context->save_for_backward({x, weight, statistics, index});
    save_window(context, window);
    context->set_materialize_grads(false);
    return outputs(y, two);
  }

  static Tensors backward(Context* context, Tensors gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &statistics = saved[2], &index = saved[3];
    const auto& functions = *kernels::functions(x.scalar_type());
    const auto [dy, dy2] = incoming(gradients, x.scalar_type());
    const auto shape = saved_shape(context, x);
    const auto device = x.device();
    const int rows = shape_of(x).rows;
    const auto dx = at::empty_like(x), dweight = at::empty_like(weight), dbias = at::empty_like(weight);
    const auto coefficients = floats(x, {3, x.size(1)});
    auto* tickets = kernels::tickets(device);
    const int patches = shape_of(dy).rows;
    const auto patch_grid = grid_of(dy);
    const auto partial = partial_sums(x, patch_grid);
    if (dy2.defined()) {
      kernels::launch(
          functions.gradients_pool[1], patch_grid, device, in(dy), in(dy2), in(index), in(x), in(weight), in(statistics),
          out(dweight), out(dbias), out(coefficients), out(partial), tickets, rows, patches, shape);
      kernels::launch(
          functions.input_gradient_pool[1], patch_grid, device, in(dy), in(dy2), in(index), in(x), in(coefficients), out(dx),
          patches, shape);
    } else {
      kernels::launch(
          functions.gradients_pool[0], patch_grid, device, in(dy), in(index), in(x), in(weight), in(statistics),
          out(dweight), out(dbias), out(coefficients), out(partial), tickets, rows, patches, shape);
      kernels::launch(
          functions.input_gradient_pool[0], patch_grid, device, in(dy), in(index), in(x), in(coefficients), out(dx), patches,
          shape);
    }
    return {dx, dweight, dbias, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct MaxPool : torch::autograd::Function<MaxPool> {
  static at::Tensor forward(Context* context, const at::Tensor& x, const PoolWindow& window) {
    const auto shape = pool_shape(x, window);
    const auto [y, index] = empty_pooled(x, shape);
    kernels::launch(
        kernels::functions(x.scalar_type())->max_pool, grid_of(y), x.device(), in(x), out(y), out(index), shape_of(y).rows,
        shape);
    context->save_for_backward({index});
    context->saved_data["sizes"] = x.sizes().vec();
    save_window(context, window);
    return y;
  }

  static Tensors backward(Context* context, Tensors gradients) {
    const auto index = context->get_saved_variables()[0];
    const auto type = gradients[0].scalar_type();
    const auto dy = in_kernel_order(gradients[0], type);
    const auto options = dy.options().memory_format(at::MemoryFormat::ChannelsLast);
    const auto dx = at::empty(context->saved_data["sizes"].toIntVector(), options);
    kernels::launch(
        kernels::functions(type)->max_pool_gradient, grid_of(dx), dx.device(), in(dy), in(index), out(dx), shape_of(dx).rows,
        saved_shape(context, dx));
    return {dx, at::Tensor()};
  }
};

}  // namespace

Tensors batch_norm_cuda(
    const at::Tensor& x, const std::optional<at::Tensor>& shortcut, const BatchNormVectors& vectors, bool relu, bool two) {
  return BatchNormCuda::apply(x, shortcut, vectors.weight, vectors.bias, vectors, relu, two);
}

Tensors batch_norm_max_pool_cuda(
    const at::Tensor& x, const BatchNormVectors& vectors, const PoolWindow& window, bool two) {
  return BatchNormMaxPool::apply(x, vectors.weight, vectors.bias, vectors, window, two);
}

at::Tensor channel_means_cuda(const at::Tensor& x) {
  // The kernel requires vectors, but the means do not depend on them.
  const auto zeros = at::zeros({4, x.size(1)}, x.options().dtype(at::kFloat).memory_format(std::nullopt));
  return statistics(x, BatchNormVectors{zeros[0], zeros[1], zeros[2], zeros[3], 0.0, 1.0})[0];
}

at::Tensor max_pool_cuda(const at::Tensor& x, const PoolWindow& window) { return MaxPool::apply(x, window); }

// A 1x1 convolution with the batch normalization, the addition and the ReLU that follow it, by the kernels of
// ../kernels/pointwise.cu: the raw output of the convolution and its gradient are never stored in memory. In TF32,
// cuBLAS computes the large products.

#include <ATen/Context.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "autograd_cuda.h"
#include "batch_norm.h"

namespace {

using Tensors = torch::autograd::variable_list;
using Context = torch::autograd::AutogradContext;
using kernels::floats;
using kernels::Grid;
using kernels::in;
using kernels::out;

constexpr int64_t kInputs = 64;
constexpr int64_t kMostChannels = 256;

// Must match the kernels' declaration.
struct PointwiseShape {
  int rows, inputs, channels;
};

uint32_t number(int64_t value) { return static_cast<uint32_t>(value); }

// Returns a one-dimensional grid of blocks with 256 threads, at most one block for each tile of `tile_rows` rows.
Grid tile_grid(int64_t rows, int64_t tile_rows, uint32_t shared) {
  return {number(std::min(kernels::blocks_at_once(), (rows + tile_rows - 1) / tile_rows)), 1, 256, 1, shared};
}

Grid plain_grid(int64_t blocks) { return {number(blocks), 1, 256, 1}; }

// Returns `images` as a matrix with one row per pixel.
at::Tensor pixels(const at::Tensor& images) { return images.permute({0, 2, 3, 1}).flatten(0, 2); }

at::Tensor images_like(const at::Tensor& pixels, const at::Tensor& x) {
  return pixels.view({x.size(0), x.size(2), x.size(3), pixels.size(1)}).permute({0, 3, 1, 2});
}

// Returns the weights multiplied by the slopes of the normalization.
at::Tensor scaled(const at::Tensor& weight, const at::Tensor& statistics) {
  return weight.flatten(1) * statistics[2].unsqueeze(1);
}

struct PointwiseNorm : torch::autograd::Function<PointwiseNorm> {
  static Tensors forward(
      Context* context, const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& shortcut,
      const at::Tensor& gamma, const at::Tensor& beta, const BatchNormVectors& vectors, bool two) {
    const auto type = x.scalar_type();
    const auto& functions = *kernels::pointwise_functions(type);
    const auto device = x.device();
    const int64_t rows = x.numel() / kInputs, channels = weight.size(0);
    const PointwiseShape shape{static_cast<int>(rows), kInputs, static_cast<int>(channels)};

    // The Gram matrix of x, followed by the sums of x.
    const auto totals = floats(x, {kInputs + 1, kInputs});
    if (type == at::kFloat) {
      // Variances are small differences of its elements: computed in IEEE fp32 and per image, so that no sum is long.
      const at::NoTF32Guard exact;
      const auto by_image = x.permute({0, 2, 3, 1}).flatten(1, 2);
      auto gram = totals.narrow(0, 0, kInputs);
      at::sum_out(gram, at::bmm(by_image.transpose(1, 2), by_image), {0});
      auto sums = totals[kInputs];
      at::mul_out(sums, channel_means_cuda(x), at::Scalar(rows));
    } else {
      const Grid grid = tile_grid(rows, 128, kernels::kStatisticsBytes);
      const int64_t length = (kInputs + 1) * kInputs;
      const auto partial = floats(x, {grid.slices, length});
      kernels::launch(functions.statistics, grid, device, in(x), out(partial), shape);
      kernels::launch(
          functions.sum, plain_grid((length + 63) / 64), device, in(partial), out(totals), static_cast<int>(grid.slices),
          static_cast<int>(length));
    }
    const auto statistics = floats(x, {4, channels}), weight_gram = floats(x, {channels, kInputs});
    kernels::launch(
        functions.statistics_finish, plain_grid(channels / 8), device, in(totals), in(totals[kInputs]), in(weight), in(gamma),
        in(beta), out(vectors.running_mean), out(vectors.running_variance), out(statistics), out(weight_gram), shape,
        static_cast<float>(vectors.momentum), static_cast<float>(vectors.epsilon));

    at::Tensor y, mask;
    if (type == at::kFloat) {
      y = images_like(at::addmm(statistics[3], pixels(x), scaled(weight, statistics).t()), x);
    } else {
      const auto options = x.options().memory_format(at::MemoryFormat::ChannelsLast);
      y = at::empty({x.size(0), channels, x.size(2), x.size(3)}, options);
      const Grid tiles{1, tile_grid(rows, 32, 0).slices, 256, 1, kernels::kApplyBytes};
      if (shortcut.has_value()) {
        mask = at::empty({y.numel() / kernels::packet_width(type)}, x.options().dtype(at::kByte));
        kernels::launch(
            functions.apply[1], tiles, device, in(x), in(weight), in(*shortcut), in(statistics), out(y), out(mask), shape);
      } else {
        kernels::launch(functions.apply[0], tiles, device, in(x), in(weight), in(statistics), out(y), shape);
      }
    }
    context->save_for_backward({x, weight, statistics, totals, weight_gram, mask});
    context->set_materialize_grads(false);
    return kernels::outputs(y, two);
  }

  static Tensors backward(Context* context, Tensors gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &statistics = saved[2], &totals = saved[3], &weight_gram = saved[4],
               &mask = saved[5];
    const auto type = x.scalar_type();
    const auto& functions = *kernels::pointwise_functions(type);
    const auto device = x.device();
    const int64_t rows = x.numel() / kInputs, channels = weight.size(0);
    const PointwiseShape shape{static_cast<int>(rows), kInputs, static_cast<int>(channels)};
    auto [dy, dy2] = kernels::incoming(gradients, type);
    const bool has_sum = mask.defined();

    at::Tensor dz, d1, partial;
    if (type == at::kFloat) {
      if (dy2.defined()) dy = dy + dy2;
      partial = floats(x, {1, (kInputs + 1) * channels});
      auto products = partial[0].narrow(0, 0, channels * kInputs).view({channels, kInputs});
      at::mm_out(products, pixels(dy).t(), pixels(x));
      auto sums = partial[0].narrow(0, channels * kInputs, channels);
      at::mv_out(sums, pixels(dy).t(), at::ones({rows}, dy.options()));
    } else {
      if (has_sum) dz = at::empty_like(dy);
      d1 = at::empty_like(x);
      const Grid grid = tile_grid(rows, 32, kernels::kGradientsBytes);
      partial = floats(x, {grid.slices, (kInputs + 1) * channels});
      kernels::launch(
          functions.gradients[has_sum][dy2.defined()], grid, device, in(dy), in(dy2), in(mask), in(x), in(weight),
          in(statistics), out(dz), out(d1), out(partial), shape);
    }
    const auto dweight = at::empty_like(weight);
    const auto dgamma = floats(x, {channels}), dbeta = floats(x, {channels}), coefficients = floats(x, {3, channels});
    kernels::launch(
        functions.gradient_finish, plain_grid(channels / 2), device, in(partial), static_cast<int>(partial.size(0)), in(weight),
        in(statistics), in(weight_gram), in(totals[kInputs]), out(dweight), out(dgamma), out(dbeta), out(coefficients), shape);
    const auto matrix = at::empty({kInputs, kInputs}, x.options()), row = floats(x, {kInputs});
    kernels::launch(
        functions.gradient_matrix, plain_grid(kInputs), device, in(weight), in(coefficients), out(matrix), out(row), shape);
    at::Tensor dx;
    if (type == at::kFloat) {
      dx = images_like(at::addmm(row, pixels(x), matrix).addmm_(pixels(dy), scaled(weight, statistics)), x);
    } else {
      dx = at::empty_like(x);
      const Grid tiles{1, tile_grid(rows, 64, 0).slices, 256, 1, kernels::kInputGradientBytes};
      kernels::launch(functions.input_gradient, tiles, device, in(d1), in(x), in(matrix), in(row), out(dx), shape);
    }
    return {dx, dweight, dz, dgamma, dbeta, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool has_pointwise_kernels(const at::Tensor& x, const at::Tensor& weight, bool has_shortcut) {
  const int64_t channels = weight.size(0);
  return kernels::pointwise_functions(x.scalar_type()) != nullptr && x.is_cuda() && x.scalar_type() == weight.scalar_type() &&
      (x.scalar_type() != at::kFloat || !has_shortcut) &&
      x.is_contiguous(at::MemoryFormat::ChannelsLast) && x.size(1) == kInputs && channels >= 2 * kInputs &&
      channels <= kMostChannels && channels % 64 == 0 && x.numel() / kInputs < (int64_t{1} << 31);
}

Tensors pointwise_norm_cuda(
    const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& shortcut, const BatchNormVectors& vectors,
    bool two) {
  return PointwiseNorm::apply(x, weight, shortcut, vectors.weight, vectors.bias, vectors, two);
}

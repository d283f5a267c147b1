// Batch normalization of a training batch for the CPU, fused with the addition of a shortcut and the ReLU that follow
// it: a single pass over channels_last images, where libtorch makes one for each of the three. The CUDA path is
// batch_norm_cuda.cpp.
//
// y = relu(x * a + b + shortcut), a = weight / sqrt(variance + epsilon), b = bias - mean * a; with g = dy where y >
// 0:
// dbias = sum g, dweight = sum g * xhat, dx = a * (g - dbias / n - xhat * dweight / n), dshortcut = g.
// Statistics are accumulated in fp32 within a block of rows and in fp64 over the blocks, in an order that depends
// only on the number of threads.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "batch_norm.h"
#include "guarded.h"
#include "kernels.h"

#if defined(__x86_64__)
#define FOR_EVERY_VECTOR_LENGTH __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_VECTOR_LENGTH
#endif
#define INLINE inline __attribute__((always_inline))

namespace {

constexpr int64_t kBlockRows = 256;

// --- one element ------------------------------------------------------------------------------------------------

struct Bits16 {
  uint16_t bits;
};

INLINE float load(float value) { return value; }
INLINE float load(Bits16 value) {
  const uint32_t wide = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &wide, sizeof result);
  return result;
}

INLINE void store(float* place, float value) { *place = value; }
INLINE void store(Bits16* place, float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof wide);
  const uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;
  place->bits = static_cast<uint16_t>(value == value ? rounded : 0x7fc0u);
}

// --- rows of `channels` neighbors ------------------------------------------------------------------------------

template <typename T>
INLINE void add_row(const T* x, const float* shift, float* sum, float* square, int64_t channels) {
#pragma GCC ivdep
  for (int64_t c = 0; c < channels; ++c) {
    const float d = load(x[c]) - shift[c];
    sum[c] += d;
    square[c] += d * d;
  }
}

template <typename T>
INLINE void normalize_row(
    const T* x, const T* shortcut, const float* a, const float* b, T* y, int64_t channels, bool relu) {
  if (shortcut != nullptr) {
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) {
      const float value = load(x[c]) * a[c] + b[c] + load(shortcut[c]);
      store(&y[c], relu && value < 0.0f ? 0.0f : value);
    }
  } else {
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) {
      const float value = load(x[c]) * a[c] + b[c];
      store(&y[c], relu && value < 0.0f ? 0.0f : value);
    }
  }
}

template <typename T>
INLINE float passed(const T* dy, const T* y, int64_t c, bool relu) {
  const float g = load(dy[c]);
  return relu && !(load(y[c]) > 0.0f) ? 0.0f : g;
}

template <typename T>
INLINE void add_gradient_row(
    const T* dy, const T* y, const T* x, const float* mean, float* sum, float* product, int64_t channels, bool relu) {
#pragma GCC ivdep
  for (int64_t c = 0; c < channels; ++c) {
    const float g = passed(dy, y, c, relu);
    sum[c] += g;
    product[c] += g * (load(x[c]) - mean[c]);
  }
}

// dx = g * p + x * q + r with p, q and r constant within a channel.
template <typename T>
INLINE void gradient_row(
    const T* dy, const T* y, const T* x, const float* p, const float* q, const float* r, T* dx, T* dshortcut,
    int64_t channels, bool relu) {
  if (dshortcut != nullptr) {
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) {
      const float g = passed(dy, y, c, relu);
      store(&dshortcut[c], g);
      store(&dx[c], g * p[c] + load(x[c]) * q[c] + r[c]);
    }
  } else {
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) {
      const float g = passed(dy, y, c, relu);
      store(&dx[c], g * p[c] + load(x[c]) * q[c] + r[c]);
    }
  }
}

// --- blocks of rows, compiled once for every vector length ------------------------------------------------------

#define ROW_BLOCKS(T)                                                                                                 \
  FOR_EVERY_VECTOR_LENGTH void add_rows(                                                                             \
      const T* x, const float* shift, float* sum, float* square, int64_t rows, int64_t channels) {                   \
    for (int64_t row = 0; row < rows; ++row) add_row(x + row * channels, shift, sum, square, channels);              \
  }                                                                                                                  \
  FOR_EVERY_VECTOR_LENGTH void normalize_rows(                                                                       \
      const T* x, const T* shortcut, const float* a, const float* b, T* y, int64_t rows, int64_t channels,           \
      bool relu) {                                                                                                   \
    for (int64_t row = 0; row < rows; ++row) {                                                                       \
      const int64_t at = row * channels;                                                                             \
      normalize_row(x + at, shortcut ? shortcut + at : nullptr, a, b, y + at, channels, relu);                       \
    }                                                                                                                \
  }                                                                                                                  \
  FOR_EVERY_VECTOR_LENGTH void add_gradient_rows(                                                                    \
      const T* dy, const T* y, const T* x, const float* mean, float* sum, float* product, int64_t rows,              \
      int64_t channels, bool relu) {                                                                                 \
    for (int64_t row = 0; row < rows; ++row) {                                                                       \
      const int64_t at = row * channels;                                                                             \
      add_gradient_row(dy + at, y + at, x + at, mean, sum, product, channels, relu);                                 \
    }                                                                                                                \
  }                                                                                                                  \
  FOR_EVERY_VECTOR_LENGTH void gradient_rows(                                                                        \
      const T* dy, const T* y, const T* x, const float* p, const float* q, const float* r, T* dx, T* dshortcut,      \
      int64_t rows, int64_t channels, bool relu) {                                                                   \
    for (int64_t row = 0; row < rows; ++row) {                                                                       \
      const int64_t at = row * channels;                                                                             \
      gradient_row(                                                                                                  \
          dy + at, y + at, x + at, p, q, r, dx + at, dshortcut ? dshortcut + at : nullptr, channels, relu);          \
    }                                                                                                                \
  }

ROW_BLOCKS(float)
ROW_BLOCKS(Bits16)
#undef ROW_BLOCKS

// --- the whole batch --------------------------------------------------------------------------------------------

// Returns two sums per channel over all rows; `add` adds a block of rows to its two fp32 arrays.
template <typename Add>
std::pair<std::vector<double>, std::vector<double>> sums(int64_t rows, int64_t channels, const Add& add) {
  const int64_t parts = std::min<int64_t>(at::get_num_threads(), (rows + kBlockRows - 1) / kBlockRows);
  std::vector<double> first(parts * channels), second(parts * channels);
  at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> block(2 * channels);
    for (int64_t part = begin; part < end; ++part) {
      const int64_t last = rows * (part + 1) / parts;
      for (int64_t row = rows * part / parts; row < last; row += kBlockRows) {
        std::fill(block.begin(), block.end(), 0.0f);
        add(row, std::min(kBlockRows, last - row), block.data(), block.data() + channels);
        for (int64_t c = 0; c < channels; ++c) {
          first[part * channels + c] += block[c];
          second[part * channels + c] += block[channels + c];
        }
      }
    }
  });
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t c = 0; c < channels; ++c) {
      first[c] += first[part * channels + c];
      second[c] += second[part * channels + c];
    }
  }
  first.resize(channels);
  second.resize(channels);
  return {std::move(first), std::move(second)};
}

template <typename Body>
void over_rows(int64_t rows, int64_t channels, const Body& body) {
  at::parallel_for(0, rows, std::max<int64_t>(1, 32768 / channels), [&](int64_t begin, int64_t end) {
    body(begin, end - begin);
  });
}

template <typename T>
const T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}

template <typename T>
T* mutable_data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

struct Settings {
  bool relu;
  double momentum;
  double epsilon;
};

template <typename T>
void forward(
    const at::Tensor& x, const at::Tensor& shortcut, const at::Tensor& weight, const at::Tensor& bias,
    const at::Tensor& running_mean, const at::Tensor& running_variance, const at::Tensor& y, const at::Tensor& mean,
    const at::Tensor& scale, const Settings& settings) {
  const int64_t channels = x.size(1), rows = x.numel() / channels;
  const T* from = data<T>(x);
  // Deviations from the first row instead of from zero, to avoid cancellation if the mean is large.
  std::vector<float> shift(channels), b(channels);
  for (int64_t c = 0; c < channels; ++c) shift[c] = load(from[c]);
  const auto [sum, square] = sums(rows, channels, [&](int64_t row, int64_t count, float* first, float* second) {
    add_rows(from + row * channels, shift.data(), first, second, count, channels);
  });
  const double n = static_cast<double>(rows);
  float* means = mutable_data<float>(mean);
  float* a = mutable_data<float>(scale);
  float* running[] = {mutable_data<float>(running_mean), mutable_data<float>(running_variance)};
  for (int64_t c = 0; c < channels; ++c) {
    const double deviation = sum[c] / n;
    const double variance = std::max(0.0, square[c] / n - deviation * deviation);
    means[c] = static_cast<float>(shift[c] + deviation);
    a[c] = static_cast<float>(1.0 / std::sqrt(variance + settings.epsilon));  // 1 / sigma until multiplied by the weight
    running[0][c] += static_cast<float>(settings.momentum * (means[c] - running[0][c]));
    running[1][c] += static_cast<float>(settings.momentum * (variance * n / (n - 1.0) - running[1][c]));
  }
  std::vector<float> slope(channels);
  for (int64_t c = 0; c < channels; ++c) {
    slope[c] = a[c] * data<float>(weight)[c];
    b[c] = data<float>(bias)[c] - means[c] * slope[c];
  }
  const T* added = data<T>(shortcut);
  T* to = mutable_data<T>(y);
  over_rows(rows, channels, [&](int64_t row, int64_t count) {
    const int64_t at = row * channels;
    normalize_rows(
        from + at, added ? added + at : nullptr, slope.data(), b.data(), to + at, count, channels, settings.relu);
  });
}

template <typename T>
void backward(
    const at::Tensor& dy, const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& mean,
    const at::Tensor& scale, const at::Tensor& dx, const at::Tensor& dshortcut, const at::Tensor& dweight,
    const at::Tensor& dbias, bool relu) {
  const int64_t channels = x.size(1), rows = x.numel() / channels;
  const T *gradient = data<T>(dy), *result = data<T>(y), *from = data<T>(x);
  const float *means = data<float>(mean), *inverse_sigma = data<float>(scale);
  const auto [sum, product] = sums(rows, channels, [&](int64_t row, int64_t count, float* first, float* second) {
    const int64_t at = row * channels;
    add_gradient_rows(gradient + at, result + at, from + at, means, first, second, count, channels, relu);
  });
  std::vector<float> p(channels), q(channels), r(channels);
  for (int64_t c = 0; c < channels; ++c) {
    const double sigma = inverse_sigma[c], n = static_cast<double>(rows);
    mutable_data<float>(dbias)[c] = static_cast<float>(sum[c]);
    mutable_data<float>(dweight)[c] = static_cast<float>(product[c] * sigma);
    const double slope = sigma * data<float>(weight)[c];
    const double pull = -slope * product[c] * sigma * sigma / n;
    p[c] = static_cast<float>(slope);
    q[c] = static_cast<float>(pull);
    r[c] = static_cast<float>(-slope * sum[c] / n - pull * means[c]);
  }
  T *to = mutable_data<T>(dx), *to_shortcut = mutable_data<T>(dshortcut);
  over_rows(rows, channels, [&](int64_t row, int64_t count) {
    const int64_t at = row * channels;
    gradient_rows(
        gradient + at, result + at, from + at, p.data(), q.data(), r.data(), to + at,
        to_shortcut ? to_shortcut + at : nullptr, count, channels, relu);
  });
}

struct BatchNorm : torch::autograd::Function<BatchNorm> {
  static at::Tensor forward(
      torch::autograd::AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& shortcut,
      const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& running_mean,
      const at::Tensor& running_variance, Settings settings) {
    auto y = at::empty_like(x);
    auto mean = at::empty_like(weight), scale = at::empty_like(weight);
    const auto run = x.scalar_type() == at::kFloat ? &::forward<float> : &::forward<Bits16>;
    run(x, shortcut.value_or(at::Tensor()), weight, bias, running_mean, running_variance, y, mean, scale, settings);
    context->save_for_backward({x, y, weight, mean, scale});
    context->saved_data["relu"] = settings.relu;
    context->saved_data["shortcut"] = shortcut.has_value();
    return y;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &y = saved[1], &weight = saved[2], &mean = saved[3], &scale = saved[4];
    const auto dy = gradients[0].contiguous(at::MemoryFormat::ChannelsLast).to(x.scalar_type());
    const auto dx = at::empty_like(x);
    const auto dshortcut = context->saved_data["shortcut"].toBool() ? at::empty_like(x) : at::Tensor();
    const auto dweight = at::empty_like(weight), dbias = at::empty_like(weight);
    const auto run = x.scalar_type() == at::kFloat ? &::backward<float> : &::backward<Bits16>;
    run(dy, y, x, weight, mean, scale, dx, dshortcut, dweight, dbias, context->saved_data["relu"].toBool());
    return {dx, dshortcut, dweight, dbias, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

namespace {

using Tensors = torch::autograd::variable_list;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

void check_vectors(const at::Tensor& x, const BatchNormVectors& vectors) {
  TORCH_CHECK(x.dim() == 4 && x.is_contiguous(kLast), "batch norm needs channels_last images");
  TORCH_CHECK(x.numel() > x.size(1), "batch norm needs more than one value per channel");
  for (const auto* vector : {&vectors.weight, &vectors.bias, &vectors.running_mean, &vectors.running_variance}) {
    TORCH_CHECK(
        vector->scalar_type() == at::kFloat && vector->is_contiguous() && vector->numel() == x.size(1),
        "batch norm needs fp32 vectors of ", x.size(1), " channels");
  }
}

// Passes new tensors to the caller: the result and, if `second` is not null, the result for a second reader.
void give(const Tensors& results, at::Tensor** first, at::Tensor** second) {
  *first = new at::Tensor(results.front());
  if (second != nullptr) *second = new at::Tensor(results.back());
}

// BatchNormVectors as Rust passes them.
struct RawVectors {
  at::Tensor *weight, *bias, *running_mean, *running_variance;
  double momentum, epsilon;

  BatchNormVectors checked(const at::Tensor& x) const {
    const BatchNormVectors vectors = *this;
    check_vectors(x, vectors);
    return vectors;
  }

  operator BatchNormVectors() const { return {*weight, *bias, *running_mean, *running_variance, momentum, epsilon}; }
};

}  // namespace

extern "C" {

// Returns 1 if CUDA kernels are loaded for the type of `x`, and `x` is channels_last and on a GPU.
int ringmark_are_kernels_loaded(at::Tensor* x) {
  return x->is_cuda() && x->dim() == 4 && x->is_contiguous(kLast) && kernels::functions(x->scalar_type()) != nullptr;
}

// Returns 1 if the kernels support `x`: its channels are a multiple of the packet width.
int ringmark_has_kernels(at::Tensor* x) {
  return ringmark_are_kernels_loaded(x) && x->size(1) % kernels::packet_width(x->scalar_type()) == 0 &&
      x->numel() / x->size(1) < (int64_t{1} << 31);
}

// `shortcut` and `second` may be null. `*first` and `*second` are new tensors owned by the caller.
char* ringmark_batch_norm(
    at::Tensor* x, at::Tensor* shortcut, RawVectors raw, bool relu, at::Tensor** first, at::Tensor** second) {
  return guarded([&] {
    const auto kind = x->scalar_type();
    const auto vectors = raw.checked(*x);
    std::optional<at::Tensor> added;
    if (shortcut != nullptr) {
      TORCH_CHECK(shortcut->sizes() == x->sizes(), "shortcut and images have different shapes");
      added = shortcut->to(kind).contiguous(kLast);
    }
    if (x->is_cuda()) {
      TORCH_CHECK(relu || !added, "the kernels add a shortcut only before a ReLU");
      return give(batch_norm_cuda(*x, added, vectors, relu, second != nullptr), first, second);
    }
    TORCH_CHECK(kind == at::kFloat || kind == at::kBFloat16, "batch norm supports fp32 and bf16, not ", kind);
    give(
        {BatchNorm::apply(
            *x, added, *raw.weight, *raw.bias, *raw.running_mean, *raw.running_variance,
            Settings{relu, raw.momentum, raw.epsilon})},
        first, second);
  });
}

// Followed by ReLU and max pooling, on CUDA.
char* ringmark_batch_norm_max_pool(
    at::Tensor* x, RawVectors raw, PoolWindow window, at::Tensor** first, at::Tensor** second) {
  return guarded([&] {
    give(batch_norm_max_pool_cuda(*x, raw.checked(*x), window, second != nullptr), first, second);
  });
}

// Returns 1 if ringmark_pointwise_norm supports `x` and `weight`, with or without a shortcut.
int ringmark_has_pointwise_kernels(at::Tensor* x, at::Tensor* weight, bool has_shortcut) {
  return has_pointwise_kernels(*x, *weight, has_shortcut);
}

// A 1x1 convolution followed by ringmark_batch_norm: with a shortcut, its addition and ReLU; otherwise neither.
char* ringmark_pointwise_norm(
    at::Tensor* x, at::Tensor* convolution, RawVectors vectors, at::Tensor* shortcut, at::Tensor** first,
    at::Tensor** second) {
  return guarded([&] {
    std::optional<at::Tensor> added;
    if (shortcut != nullptr) added = shortcut->to(x->scalar_type()).contiguous(kLast);
    give(pointwise_norm_cuda(*x, *convolution, added, vectors, second != nullptr), first, second);
  });
}

char* ringmark_max_pool(at::Tensor* x, PoolWindow window, at::Tensor** y) {
  return guarded([&] { *y = new at::Tensor(max_pool_cuda(*x, window)); });
}

}  // extern "C"

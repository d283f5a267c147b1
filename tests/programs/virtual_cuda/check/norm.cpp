// Compares batch normalization and max pooling (batch_norm.cu, pool.cu) with their formulas in fp64.
//
// usage: norm HALF|BFLOAT16|FLOAT FOLDER     prints a checksum of every result; the folder caches the compiled
// kernels

#include <array>
#include <optional>

#include "numbers.h"

using namespace harness;

namespace {

// Must match the kernels' declarations.
struct Shape {
  int rows, channels;
};

struct Window {
  int height, width, channels, pooled_height, pooled_width, kernel, stride, padding;
};

enum After { NOTHING, RELU, SUM_AND_RELU, SUM_AND_RELU_TWO };
const char* const NAMES[] = {"", "_relu", "_sum_relu", "_sum_relu_two"};

constexpr float MOMENTUM = 0.1f, EPSILON = 1e-5f;

struct Statistics {
  Numbers mean, inverse_sigma, variance, slope, offset;

  Numbers all() const {
    Numbers values;
    for (const Numbers* one : {&mean, &inverse_sigma, &slope, &offset}) {
      values.insert(values.end(), one->begin(), one->end());
    }
    return values;
  }
};

template <typename E>
class Check {
 public:
  Check(const Kernels& kernels, Random& random, int rows, int channels, double scale, double offset)
      : kernels_(kernels), random_(random), shape_{rows, channels},
        // Rounding of the mean in fp32, which affects every value.
        noise_(4e-6 + 0x1p-22 * std::fabs(offset) / scale),
        weight_(rounded<Float>(random.numbers(channels, 0.5, 1.0))), bias_(random.numbers(channels)),
        x_(rounded<E>(random.numbers(count(), scale, offset))), name_(std::string(E::NAME) + " " + std::to_string(rows) + " x " + std::to_string(channels)) {}

  void set_x(std::size_t index, double value) { x_[index] = value; }

  // Runs forward and backward; `value` replaces the element of dy at index `broken`, if given.
  void run(After after, std::optional<std::size_t> broken = {}, double value = 0.0);

  // The same, followed by max pooling of `images` images after the ReLU.
  void run_pool(int images, int height, int width, bool two);

  std::uint64_t checksum() const { return checksum_.value(); }

 private:
  using S = typename E::Stored;
  static constexpr int WIDTH = 16 / sizeof(S);

  std::size_t count() const { return static_cast<std::size_t>(shape_.rows) * shape_.channels; }

  template <typename... A>
  void launch(const std::string& name, int rows, A... arguments) {
    // Same as row_grid in ffi/torch/kernels.cpp on 4 multiprocessors.
    const int all = shape_.channels / WIDTH, packets = std::min(8, all), slices = (all + packets - 1) / packets;
    int height = 1;
    while (2 * height * packets <= 256) height *= 2;
    const int parts = std::min(std::max(1, 8 / slices), (rows + height - 1) / height);
    parts_ = parts;
    const auto number = [](int value) { return static_cast<unsigned>(value); };
    check(kernels_.launch(name.c_str(), {number(slices), number(parts)}, {number(packets), number(height)}, nullptr, arguments...), name.c_str());
  }

  Statistics statistics();
  void expect_statistics(const Statistics& expected, const Buffer<float>& statistics, const Buffer<float>& mean, const Buffer<float>& variance);
  // Checks dweight, dbias and dx for `dz`, the gradient of the normalization's output.
  void expect_gradients(const Statistics& of, const Numbers& dz, const Tensor<Float>& dweight, const Tensor<Float>& dbias, const Tensor<E>& dx, const std::string& what);

  const Kernels& kernels_;
  Random& random_;
  const Shape shape_;
  const double noise_;
  const Numbers weight_, bias_;
  Numbers x_;
  const std::string name_;
  int parts_ = 0;
  Checksum checksum_;
  const Buffer<unsigned> tickets_{std::vector<unsigned>(256)};
  const Tensor<Float> partial_{static_cast<std::size_t>(8 * 2 * shape_.channels)};
};

template <typename E>
Statistics Check<E>::statistics() {
  Statistics of;
  for (int c = 0; c < shape_.channels; ++c) {
    double mean = 0.0, variance = 0.0;
    for (std::size_t i = c; i < count(); i += shape_.channels) mean += x_[i] / shape_.rows;
    for (std::size_t i = c; i < count(); i += shape_.channels) variance += (x_[i] - mean) * (x_[i] - mean) / shape_.rows;
    // Deviations from infinity.
    if (std::isinf(mean)) variance = NAN;
    of.mean.push_back(mean);
    of.variance.push_back(variance);
    of.inverse_sigma.push_back(1.0 / std::sqrt(variance + EPSILON));
    of.slope.push_back(of.inverse_sigma[c] * weight_[c]);
    of.offset.push_back(bias_[c] - mean * of.slope[c]);
  }
  return of;
}

template <typename E>
void Check<E>::expect_statistics(
    const Statistics& expected, const Buffer<float>& statistics, const Buffer<float>& mean, const Buffer<float>& variance) {
  const Numbers all = values_of<Float>(statistics.values());
  const std::size_t channels = shape_.channels;
  const auto part = [&](std::size_t index) { return Numbers(all.begin() + index * channels, all.begin() + (index + 1) * channels); };
  Numbers is_broken, running_mean, running_variance;
  for (std::size_t c = 0; c < channels; ++c) {
    running_mean.push_back(0.5 + 0.1 * (expected.mean[c] - 0.5));
    running_variance.push_back(2.0 + 0.1 * (expected.variance[c] * shape_.rows / (shape_.rows - 1.0) - 2.0));
  }
  // A channel with an infinity has no mean: NaN and infinity are equivalent.
  Numbers means = expected.mean;
  for (std::size_t c = 0; c < channels; ++c) {
    if (!std::isfinite(means[c])) {
      expect(!std::isfinite(part(0)[c]) && std::isnan(part(1)[c]), name_ + " statistics of a channel that is broken");
      return;
    }
  }
  expect_near(part(0), means, 1e-6, name_ + " mean");
  expect_near(part(1), expected.inverse_sigma, 1e-5, name_ + " 1 / sigma");
  expect_near(part(2), expected.slope, 1e-5, name_ + " slope");
  expect_near(part(3), expected.offset, 1e-5, name_ + " offset");
  expect_near(values_of<Float>(mean.values()), running_mean, 1e-6, name_ + " running mean");
  expect_near(values_of<Float>(variance.values()), running_variance, 1e-5, name_ + " running variance");
}

template <typename E>
void Check<E>::expect_gradients(
    const Statistics& of, const Numbers& dz, const Tensor<Float>& dweight, const Tensor<Float>& dbias, const Tensor<E>& dx,
    const std::string& what) {
  const std::size_t channels = shape_.channels;
  Numbers sums(channels), products(channels), of_dx(count());
  for (std::size_t i = 0; i < count(); ++i) {
    sums[i % channels] += dz[i];
    products[i % channels] += dz[i] * (x_[i] - of.mean[i % channels]) * of.inverse_sigma[i % channels];
  }
  for (std::size_t i = 0; i < count(); ++i) {
    const std::size_t c = i % channels;
    of_dx[i] = of.slope[c] * (dz[i] - (sums[c] + (x_[i] - of.mean[c]) * of.inverse_sigma[c] * products[c]) / shape_.rows);
  }
  // Infinity minus infinity is NaN in one order of sums and infinity in another: neither may be finite.
  const auto compare = [&](const Numbers& actual, Numbers expected, double tolerance, const std::string& name, double absolute = 1e-12) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!std::isfinite(expected[i]) && !std::isfinite(actual[i])) expected[i] = actual[i];
    }
    expect_near(actual, expected, tolerance, what + name, absolute);
  };
  compare(dbias.numbers(), sums, 1e-5, " dbias");
  compare(dweight.numbers(), products, 1e-5 + noise_, " dweight");
  // A small difference of terms with the size of the slope.
  double steepest = 0.0;
  for (const double slope : of.slope) steepest = std::isfinite(slope) ? std::max(steepest, slope) : steepest;
  compare(dx.numbers(), of_dx, E::EPSILON * 1.01 + 4 * noise_, " dx", noise_ * steepest);
  for (const unsigned ticket : tickets_.values()) expect(ticket == 0, what + " tickets");
}

template <typename E>
void Check<E>::run(After after, std::optional<std::size_t> broken, double value) {
  const std::string what = name_ + NAMES[after];
  const bool has_sum = after >= SUM_AND_RELU;
  const std::size_t channels = shape_.channels;
  const Tensor<E> x(x_), y(count()), dz(count()), dx(count());
  const Tensor<Float> weight(weight_), bias(bias_), statistics(4 * channels), mean(Numbers(channels, 0.5)), variance(Numbers(channels, 2.0));
  const Buffer<std::uint8_t> mask(std::vector<std::uint8_t>(count() / WIDTH));
  const Numbers of_shortcut = rounded<E>(random_.numbers(count()));
  Numbers of_dy = rounded<E>(random_.numbers(count()));
  const Numbers of_dy2 = rounded<E>(random_.numbers(count()));
  if (broken) of_dy[*broken] = value;
  const Tensor<E> shortcut(of_shortcut), dy(of_dy), dy2(of_dy2);

  launch("batch_norm_statistics", shape_.rows, in(x), in(weight), in(bias), out(mean), out(variance), out(statistics), out(partial_), out(tickets_), shape_, MOMENTUM, EPSILON);
  const Statistics of = this->statistics();
  expect_statistics(of, statistics, mean, variance);

  const std::string apply = std::string("batch_norm_apply") + NAMES[std::min(after, SUM_AND_RELU)];
  if (has_sum) {
    launch(apply, shape_.rows, in(x), in(shortcut), in(statistics), out(y), out(mask), shape_);
  } else {
    launch(apply, shape_.rows, in(x), in(statistics), out(y), shape_);
  }
  Numbers expected(count());
  for (std::size_t i = 0; i < count(); ++i) {
    const std::size_t c = i % channels;
    const double v = std::isfinite(of.mean[c]) ? (x_[i] - of.mean[c]) * of.slope[c] + bias_[c] + (has_sum ? of_shortcut[i] : 0.0) : NAN;
    expected[i] = after != NOTHING && v <= 0.0 ? 0.0 : v;
  }
  const Numbers of_y = y.numbers();
  expect_near(of_y, expected, E::EPSILON * 1.01 + 4 * noise_, what + " y");

  Numbers of_dz(count());
  const std::vector<std::uint8_t> bits = mask.values();
  for (std::size_t i = 0; i < count(); ++i) {
    const bool is_on = after == NOTHING || !(of_y[i] <= 0.0);
    expect(!has_sum || is_on == (bits[i / WIDTH] >> i % WIDTH & 1), what + " mask");
    const double sum = of_dy[i] + (after == SUM_AND_RELU_TWO ? of_dy2[i] : 0.0);
    of_dz[i] = is_on ? E::value(E::stored(sum)) : 0.0;
  }
  const Tensor<Float> dweight(channels), dbias(channels), coefficients(3 * channels);
  const std::string gradients = std::string("batch_norm_gradients") + NAMES[after];
  if (after == SUM_AND_RELU_TWO) {
    launch(gradients, shape_.rows, in(dy), in(dy2), in(mask), in(x), in(weight), in(statistics), out(dz), out(dweight), out(dbias), out(coefficients), out(partial_), out(tickets_), shape_);
  } else if (has_sum) {
    launch(gradients, shape_.rows, in(dy), in(mask), in(x), in(weight), in(statistics), out(dz), out(dweight), out(dbias), out(coefficients), out(partial_), out(tickets_), shape_);
  } else {
    launch(gradients, shape_.rows, in(dy), in(x), in(weight), in(statistics), out(dweight), out(dbias), out(coefficients), out(partial_), out(tickets_), shape_);
  }
  if (has_sum) expect_near(dz.numbers(), of_dz, 0.0, what + " dz");
  const std::string input = std::string("batch_norm_input_gradient") + (after == RELU ? "_relu" : "");
  launch(input, shape_.rows, has_sum ? in(dz) : in(dy), in(x), in(statistics), in(coefficients), out(dx), shape_);
  expect_gradients(of, of_dz, dweight, dbias, dx, what);
  for (const auto* one : {&y, &dx, &dz}) checksum_.add(*one);
  for (const auto* one : {&statistics, &mean, &variance, &dweight, &dbias}) checksum_.add(*one);
}

// Calls `body` with the index of the first maximum of each window, where NaN is larger than any number; `where` is
// its index in x.
template <typename Body>
void for_each_window(const Window& window, int images, const Numbers& values, const Body& body) {
  std::size_t pooled = 0;
  for (int image = 0; image < images; ++image) {
    for (int line = 0; line < window.pooled_height; ++line) {
      for (int column = 0; column < window.pooled_width; ++column) {
        for (int c = 0; c < window.channels; ++c, ++pooled) {
          double largest = -INFINITY;
          std::size_t where = 0;
          for (int k = 0; k < window.kernel * window.kernel; ++k) {
            const int h = line * window.stride - window.padding + k / window.kernel, w = column * window.stride - window.padding + k % window.kernel;
            if (h < 0 || h >= window.height || w < 0 || w >= window.width) continue;
            const std::size_t at = ((static_cast<std::size_t>(image) * window.height + h) * window.width + w) * window.channels + c;
            if (values[at] > largest || std::isnan(values[at])) {
              largest = values[at];
              where = at;
            }
          }
          body(pooled, largest, where);
        }
      }
    }
  }
}

Window window_of(int height, int width, int channels, int kernel, int stride, int padding) {
  const auto pooled = [&](int size) { return (size + 2 * padding - kernel) / stride + 1; };
  return {height, width, channels, pooled(height), pooled(width), kernel, stride, padding};
}

template <typename E>
void Check<E>::run_pool(int images, int height, int width, bool two) {
  const std::string what = name_ + " pool " + std::to_string(height) + " x " + std::to_string(width) + (two ? " two" : "");
  const Window window = window_of(height, width, shape_.channels, 3, 2, 1);
  const std::size_t channels = shape_.channels, pooled = images * window.pooled_height * window.pooled_width * channels;
  const int patches = static_cast<int>(pooled / channels);
  const Tensor<E> x(x_), y(pooled), dx(count());
  const Tensor<Float> weight(weight_), bias(bias_), statistics(4 * channels), mean(Numbers(channels, 0.5)), variance(Numbers(channels, 2.0));
  const Buffer<std::uint8_t> index(std::vector<std::uint8_t>(pooled, 77));
  const Numbers of_dy = rounded<E>(random_.numbers(pooled)), of_dy2 = rounded<E>(random_.numbers(pooled));
  const Tensor<E> dy(of_dy), dy2(of_dy2);
  launch("batch_norm_statistics", shape_.rows, in(x), in(weight), in(bias), out(mean), out(variance), out(statistics), out(partial_), out(tickets_), shape_, MOMENTUM, EPSILON);
  launch("batch_norm_apply_relu_max_pool", patches, in(x), in(statistics), out(y), out(index), patches, window);
  const Statistics of = this->statistics();
  Numbers normal(count()), expected(pooled), dz(count());
  for (std::size_t i = 0; i < count(); ++i) {
    const double v = (x_[i] - of.mean[i % channels]) * of.slope[i % channels] + bias_[i % channels];
    normal[i] = v <= 0.0 ? 0.0 : v;
  }
  for_each_window(window, images, normal, [&](std::size_t at, double largest, std::size_t where) {
    expected[at] = largest;
    if (!(largest <= 0.0)) dz[where] += of_dy[at] + (two ? of_dy2[at] : 0.0);
  });
  expect_near(y.numbers(), expected, E::EPSILON * 1.01 + 4 * noise_, what + " y");

  const Tensor<Float> dweight(channels), dbias(channels), coefficients(3 * channels);
  if (two) {
    launch("batch_norm_gradients_max_pool_two", patches, in(dy), in(dy2), in(index), in(x), in(weight), in(statistics), out(dweight), out(dbias), out(coefficients), out(partial_), out(tickets_), shape_.rows, patches, window);
    launch("batch_norm_input_gradient_max_pool_two", patches, in(dy), in(dy2), in(index), in(x), in(coefficients), out(dx), patches, window);
  } else {
    launch("batch_norm_gradients_max_pool", patches, in(dy), in(index), in(x), in(weight), in(statistics), out(dweight), out(dbias), out(coefficients), out(partial_), out(tickets_), shape_.rows, patches, window);
    launch("batch_norm_input_gradient_max_pool", patches, in(dy), in(index), in(x), in(coefficients), out(dx), patches, window);
  }
  expect_gradients(of, dz, dweight, dbias, dx, what);
  checksum_.add(y);
  checksum_.add(dx);
  checksum_.add(dweight);
}

// Max pooling alone, with few different values, so that most windows have several maxima.
template <typename E>
std::uint64_t check_max_pool(const Kernels& kernels, Random& random, int channels, const Window& window) {
  constexpr int IMAGES = 2, WIDTH = 16 / sizeof(typename E::Stored);
  const std::string what = std::string(E::NAME) + " max pool " + std::to_string(window.height) + " x " + std::to_string(window.width) +
      " by " + std::to_string(window.kernel) + ", " + std::to_string(window.stride) + ", " + std::to_string(window.padding);
  const int rows = IMAGES * window.height * window.width, patches = IMAGES * window.pooled_height * window.pooled_width;
  Numbers of_x = random.numbers(static_cast<std::size_t>(rows) * channels);
  for (double& value : of_x) value = std::round(2.0 * value);
  of_x[0] = of_x[channels + 1] = NAN;
  of_x[2] = INFINITY;
  for (int row = 0; row < rows; ++row) of_x[row * channels + 3] = -INFINITY;
  const Numbers of_dy = rounded<E>(random.numbers(static_cast<std::size_t>(patches) * channels));
  const Tensor<E> x(of_x), y(of_dy.size()), dy(of_dy), dx(of_x.size());
  const Buffer<std::uint8_t> index(std::vector<std::uint8_t>(of_dy.size(), 77));
  const unsigned packets = channels / WIDTH, height = 4;
  const Grid block{packets, height};
  const auto grid = [&](int count) { return Grid{1, std::min(3u, (count + height - 1) / height)}; };
  CHECK(kernels.launch("max_pool", grid(patches), block, nullptr, in(x), out(y), out(index), patches, window));
  CHECK(kernels.launch("max_pool_gradient", grid(rows), block, nullptr, in(dy), in(index), out(dx), rows, window));
  Numbers expected(of_dy.size()), gradient(of_x.size());
  const std::vector<std::uint8_t> indices = index.values();
  for_each_window(window, IMAGES, of_x, [&](std::size_t at, double largest, std::size_t where) {
    expected[at] = largest;
    // No value of a window of -infinity is larger than the initial value, so no gradient passes.
    if (largest != -INFINITY) gradient[where] += of_dy[at];
  });
  expect_near(y.numbers(), expected, 0.0, what + " y");
  expect_near(dx.numbers(), gradient, E::EPSILON * 1.01, what + " dx");
  Checksum checksum;
  checksum.add(y);
  checksum.add(dx);
  checksum.add(index);
  return checksum.value();
}

template <typename E>
void check_element(int count, char** arguments) {
  const Kernels kernels(cached(count, arguments, prelude() + kernel_file("batch_norm.cu") + kernel_file("pool.cu"), E::NAME));
  const auto all = [&] {
    std::vector<std::uint64_t> checksums;
    Random random(7);
    const auto run = [&](int rows, int channels, double scale, double offset) {
      Check<E> one(kernels, random, rows, channels, scale, offset);
      for (const After after : {NOTHING, RELU, SUM_AND_RELU, SUM_AND_RELU_TWO}) one.run(after);
      checksums.push_back(one.checksum());
    };
    run(2, 8, 1.0, 0.0);
    run(37, 8, 1.0, 0.0);
    run(131, 24, 1.0, -0.5);
    run(333, 64, 8.0, 800.0);
    run(45, 320, 1.0, 0.25);
    run(5, 2048, 1.0, 0.0);
    for (const double broken : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
      for (const std::size_t place : {std::size_t{3}, std::size_t{20 * 16 + 5}}) {
        for (const After after : {NOTHING, RELU, SUM_AND_RELU, SUM_AND_RELU_TWO}) {
          Check<E> of_x(kernels, random, 37, 16, 1.0, 0.0), of_dy(kernels, random, 37, 16, 1.0, 0.0);
          of_x.set_x(place, broken);
          of_x.run(after);
          of_dy.run(after, place, broken);
          checksums.insert(checksums.end(), {of_dy.checksum()});
        }
      }
    }
    for (const auto& [height, width, channels] : {std::array{7, 9, 8}, {8, 6, 64}, {1, 2, 8}, {13, 4, 16}}) {
      for (const bool two : {false, true}) {
        Check<E> one(kernels, random, 2 * height * width, channels, 1.0, 0.0);
        one.run_pool(2, height, width, two);
        checksums.push_back(one.checksum());
      }
    }
    for (const auto& [height, width, kernel, stride, padding] :
         {std::array{7, 9, 3, 2, 1}, {8, 8, 2, 2, 0}, {5, 6, 3, 1, 1}, {9, 7, 3, 2, 0}, {2, 2, 3, 2, 1}, {6, 11, 5, 3, 2}}) {
      checksums.push_back(check_max_pool<E>(kernels, random, 16, window_of(height, width, 16, kernel, stride, padding)));
    }
    return checksums;
  };
  const auto first = all();
  expect(all() == first, "a second run gives other bits");
  std::uint64_t sum = 0;
  for (const std::uint64_t one : first) sum = sum * 31 + one;
  std::printf("%s %016llx\n", E::NAME, static_cast<unsigned long long>(sum));
}

}  // namespace

int main(int count, char** arguments) {
  const std::string element = count > 1 ? arguments[1] : "";
  expect(element == "HALF" || element == "BFLOAT16" || element == "FLOAT", "the first argument must be an element type");
  (element == "HALF" ? check_element<Half> : element == "BFLOAT16" ? check_element<BFloat16> : check_element<Float>)(count, arguments);
}

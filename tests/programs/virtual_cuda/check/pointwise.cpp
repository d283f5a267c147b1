// Compares a 1x1 convolution with batch normalization (pointwise.cu) with its formulas in fp64.
//
// usage: pointwise HALF|BFLOAT16 FOLDER     prints a checksum of every result; the folder caches the compiled kernels

#include "numbers.h"

using namespace harness;

namespace {

constexpr int INPUTS = 64;

// Must match the kernels' declaration.
struct Shape {
  int rows, inputs, channels;
};

// Returns left^T right for matrices with `rows` rows.
Numbers product(const Numbers& left, const Numbers& right, int rows) {
  const std::size_t m = left.size() / rows, n = right.size() / rows;
  Numbers result(m * n);
  for (int row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) result[i * n + j] += left[row * m + i] * right[row * n + j];
    }
  }
  return result;
}

Numbers transposed(const Numbers& values, int rows) {
  const std::size_t columns = values.size() / rows;
  Numbers result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i % columns * rows + i / columns] = values[i];
  return result;
}

Numbers column_sums(const Numbers& values, int rows) { return product(Numbers(rows, 1.0), values, rows); }

// Input in which one value is replaced.
enum class Broken { NOTHING, X, DY };

template <typename E>
std::uint64_t run(const Kernels& kernels, int rows, int channels, bool has_sum, bool two, Broken broken = Broken::NOTHING) {
  using S = typename E::Stored;
  const std::string what = std::string(E::NAME) + " " + std::to_string(rows) + " x " + std::to_string(channels) +
      (has_sum ? " sum" : " linear") + (two ? " two" : "");
  Random random(rows + channels);
  const Shape shape{rows, INPUTS, channels};
  const std::size_t count = static_cast<std::size_t>(rows) * channels, inputs = static_cast<std::size_t>(rows) * INPUTS;
  Numbers of_x = random.numbers(inputs);
  // Rectified, like the output of the preceding convolution.
  for (double& value : of_x) value = std::max(value, 0.0);
  if (broken == Broken::X) of_x[inputs / 2] = NAN;
  const Numbers of_weight = rounded<E>(random.numbers(channels * INPUTS, 0.125)), of_shortcut = random.numbers(count);
  Numbers of_dy = random.numbers(count);
  const Numbers of_dy2 = random.numbers(count), of_gamma = random.numbers(channels, 0.5, 1.0), of_beta = random.numbers(channels);
  const std::size_t broken_dy = count / 2 + 5;
  if (broken == Broken::DY) of_dy[broken_dy] = NAN;

  const Tensor<E> x(of_x), weight(of_weight), shortcut(of_shortcut), dy(of_dy), dy2(of_dy2);
  const Tensor<Float> gamma(of_gamma), beta(of_beta), running_mean(Numbers(channels, 0.5)), running_variance(Numbers(channels, 2.0));
  const Tensor<E> y(count), dz(count), d1(inputs), dx(inputs), dweight(of_weight.size()), matrix(INPUTS * INPUTS);
  const Tensor<Float> totals((INPUTS + 1) * INPUTS), statistics(4 * channels), weight_gram(channels * INPUTS), row(INPUTS);
  const Tensor<Float> dgamma(channels), dbeta(channels), coefficients(3 * channels);
  const Buffer<std::uint8_t> mask(std::vector<std::uint8_t>(count / 8));

  // Same as ffi/torch/pointwise_cuda.cpp on 4 multiprocessors.
  const auto launch = [&](const std::string& name, int blocks, unsigned shared, auto... arguments) {
    const bool has_slices = name.find("apply") == 0 || name == "input_gradient";
    const auto number = static_cast<unsigned>(blocks);
    const Grid grid = has_slices ? Grid{1, number, 1, shared} : Grid{number, 1, 1, shared};
    check(kernels.launch(("pointwise_" + name).c_str(), grid, {256}, nullptr, arguments...), name.c_str());
  };
  const auto tiles = [&](int tile_rows) { return std::min(8, (rows + tile_rows - 1) / tile_rows); };
  const Tensor<Float> partial(static_cast<std::size_t>(8) * (INPUTS + 1) * std::max(channels, INPUTS));
  const float* const sums = in(totals) + INPUTS * INPUTS;
  const int length = (INPUTS + 1) * INPUTS;
  launch("statistics_64", tiles(128), 49152, in(x), out(partial), shape);
  launch("sum", (length + 63) / 64, 0, in(partial), out(totals), tiles(128), length);
  launch("statistics_finish", channels / 8, 0, in(totals), sums, in(weight), in(gamma), in(beta), out(running_mean), out(running_variance), out(statistics), out(weight_gram), shape, 0.1f, 1e-5f);
  if (has_sum) {
    launch("apply_sum_relu_64", tiles(32), 98304, in(x), in(weight), in(shortcut), in(statistics), out(y), out(mask), shape);
  } else {
    launch("apply_linear_64", tiles(32), 98304, in(x), in(weight), in(statistics), out(y), shape);
  }
  const std::string gradients = std::string("gradients") + (has_sum ? "_relu" : "") + (two ? "_two" : "");
  launch(gradients, tiles(32), 92160, in(dy), two ? in(dy2) : static_cast<const S*>(nullptr), has_sum ? in(mask) : static_cast<const std::uint8_t*>(nullptr), in(x), in(weight), in(statistics), has_sum ? out(dz) : static_cast<S*>(nullptr), out(d1), out(partial), shape);
  launch("gradient_finish", channels / 2, 0, in(partial), tiles(32), in(weight), in(statistics), in(weight_gram), sums, out(dweight), out(dgamma), out(dbeta), out(coefficients), shape);
  launch("gradient_matrix", INPUTS, 0, in(weight), in(coefficients), out(matrix), out(row), shape);
  launch("input_gradient", tiles(64), 58880, in(d1), in(x), in(matrix), in(row), out(dx), shape);

  const Numbers of_y = y.numbers(), of_dx = dx.numbers(), of_dweight = dweight.numbers();
  if (broken == Broken::X) {
    // Every channel reads the replaced input.
    for (const Numbers* one : {&of_y, &of_dx, &of_dweight}) {
      for (const double value : *one) expect(std::isnan(value), what + ": NaN of x does not arrive");
    }
    for (const double value : dgamma.numbers()) expect(std::isnan(value), what + ": NaN of x does not arrive in dgamma");
    return 0;
  }
  // The convolution with its normalization, step by step.
  Numbers raw = product(transposed(of_x, rows), transposed(of_weight, channels), INPUTS), normal(count), of_dz(count);
  Numbers mean = column_sums(raw, rows), variance(channels), inverse_sigma(channels);
  for (double& value : mean) value /= rows;
  for (std::size_t i = 0; i < count; ++i) variance[i % channels] += std::pow(raw[i] - mean[i % channels], 2) / rows;
  for (int c = 0; c < channels; ++c) inverse_sigma[c] = 1.0 / std::sqrt(variance[c] + 1e-5f);
  Numbers expected(count);
  const std::vector<std::uint8_t> bits = mask.values();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t c = i % channels;
    normal[i] = (raw[i] - mean[c]) * inverse_sigma[c];
    const double value = normal[i] * of_gamma[c] + of_beta[c] + (has_sum ? of_shortcut[i] : 0.0);
    const bool is_on = !has_sum || (bits[i / 8] >> i % 8 & 1);
    expected[i] = has_sum && value <= 0.0 ? 0.0 : value;
    expect(!has_sum || is_on == !(of_y[i] <= 0.0), what + " mask");
    of_dz[i] = is_on ? E::value(E::stored(of_dy[i] + (two ? of_dy2[i] : 0.0))) : 0.0;
  }
  const double rounding = 1.01 * E::EPSILON;
  expect_near(of_y, expected, rounding + 2e-5, what + " y");
  if (has_sum) expect_near(dz.numbers(), of_dz, 0.0, what + " dz");
  Numbers running(channels), unbiased(channels), products(count), of_raw(count), slopes(channels);
  for (int c = 0; c < channels; ++c) {
    running[c] = 0.5 + 0.1 * (mean[c] - 0.5);
    unbiased[c] = 2.0 + 0.1 * (variance[c] * rows / (rows - 1.0) - 2.0);
    slopes[c] = of_gamma[c] * inverse_sigma[c];
  }
  expect_near(running_mean.numbers(), running, 1e-6, what + " running mean");
  expect_near(running_variance.numbers(), unbiased, 1e-5, what + " running variance");
  for (std::size_t i = 0; i < count; ++i) products[i] = of_dz[i] * normal[i];
  const Numbers of_dbeta = column_sums(of_dz, rows), of_dgamma = column_sums(products, rows);
  expect_near(dbeta.numbers(), of_dbeta, 1e-5, what + " dbeta");
  // Computed without the raw output: a small difference of sums over the rows.
  expect_near(dgamma.numbers(), of_dgamma, 2e-4, what + " dgamma");
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t c = i % channels;
    of_raw[i] = slopes[c] * (of_dz[i] - (of_dbeta[c] + normal[i] * of_dgamma[c]) / rows);
  }
  if (broken == Broken::DY) {
    const std::size_t c = broken_dy % channels;
    for (const double value : of_dx) expect(std::isnan(value), what + ": NaN of dy does not arrive in dx");
    for (int k = 0; k < INPUTS; ++k) expect(std::isnan(of_dweight[c * INPUTS + k]), what + ": NaN of dy does not arrive in dweight");
    expect(std::isnan(of_dbeta[c]) && std::isnan(dgamma.numbers()[c]), what + ": NaN of dy does not arrive in the sums");
    return 0;
  }
  // In half precision like the weights: each element of p W, of the matrix and of d1 is rounded once.
  double size = 0.0;
  for (std::size_t i = 0; i < count; ++i) size += std::pow(slopes[i % channels] * of_dz[i], 2);
  double weights = 0.0;
  for (const double value : of_weight) weights += value * value;
  // Size of a typical dx before its two parts are added.
  const double typical = std::sqrt(size / rows * weights / channels);
  expect_near(of_dx, product(transposed(of_raw, rows), of_weight, channels), rounding, what + " dx", 4 * E::EPSILON * typical);
  expect_near(of_dweight, product(of_raw, of_x, rows), rounding + 1e-4, what + " dweight", 2e-5 * std::sqrt(size / channels * INPUTS));
  Checksum checksum;
  for (const auto* one : {&y, &d1, &dx, &dweight}) checksum.add(*one);
  for (const auto* one : {&statistics, &running_mean, &running_variance, &dgamma, &dbeta}) checksum.add(*one);
  if (has_sum) checksum.add(dz);
  return checksum.value();
}

template <typename E>
void check_element(int count, char** arguments) {
  const Kernels kernels(cached(count, arguments, prelude() + kernel_file("pointwise.cu"), E::NAME));
  std::uint64_t sum = 0;
  const auto twice = [&](int rows, int channels, bool has_sum, bool two) {
    const std::uint64_t first = run<E>(kernels, rows, channels, has_sum, two);
    expect(run<E>(kernels, rows, channels, has_sum, two) == first, "a second run gives other bits");
    sum = sum * 31 + first;
  };
  twice(3, 256, true, true);
  twice(3, 128, false, true);
  twice(65, 192, false, false);
  sum = sum * 31 + run<E>(kernels, 257, 256, true, false);
  sum = sum * 31 + run<E>(kernels, 1003, 128, true, true);
  for (const bool has_sum : {false, true}) {
    run<E>(kernels, 33, 128, has_sum, false, Broken::X);
    // Every gradient passes if there is no ReLU.
    if (!has_sum) run<E>(kernels, 33, 128, has_sum, true, Broken::DY);
  }
  std::printf("%s %016llx\n", E::NAME, static_cast<unsigned long long>(sum));
}

}  // namespace

int main(int count, char** arguments) {
  const std::string element = count > 1 ? arguments[1] : "";
  expect(element == "HALF" || element == "BFLOAT16", "the first argument must be HALF or BFLOAT16");
  (element == "HALF" ? check_element<Half> : check_element<BFloat16>)(count, arguments);
}

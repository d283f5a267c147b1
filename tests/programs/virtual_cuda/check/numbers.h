// Numbers for tests of the worker's kernels: inputs, element types, and comparison with results in fp64.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "harness.h"

namespace harness {

using Numbers = std::vector<double>;

// Element types of the kernels: storage and precision.
struct Half {
  using Stored = std::uint16_t;
  static constexpr const char* NAME = "HALF";
  static constexpr double EPSILON = 0x1p-11;
  static double value(Stored bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
        : exponent == 0               ? std::ldexp(fraction, -24)
                                      : std::ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -size : size;
  }
  static Stored stored(double value) {
    const Stored sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::fabs(value);
    if (std::isnan(value)) return 0x7fff;
    if (size >= 65520.0) return sign | 0x7c00;
    // A unit in the last place; a carry from the fraction increments the exponent.
    const int exponent = std::max(size == 0.0 ? -14 : std::ilogb(size), -14);
    const int steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
    return static_cast<Stored>(sign | (steps + ((exponent + 14) << 10)));
  }
};

struct BFloat16 {
  using Stored = std::uint16_t;
  static constexpr const char* NAME = "BFLOAT16";
  static constexpr double EPSILON = 0x1p-8;
  static double value(Stored stored) {
    const std::uint32_t bits = static_cast<std::uint32_t>(stored) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  static Stored stored(double value) {
    if (std::isnan(value)) return 0x7fff;
    const auto rounded = static_cast<float>(value);
    std::uint32_t bits;
    std::memcpy(&bits, &rounded, sizeof(bits));
    return static_cast<Stored>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

struct Float {
  using Stored = float;
  static constexpr const char* NAME = "FLOAT";
  static constexpr double EPSILON = 0x1p-24;
  static double value(Stored value) { return value; }
  static Stored stored(double value) { return static_cast<float>(value); }
};

// Generates the same numbers in every run.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // Uniform in -1..1, a multiple of 1/256: exact in each type, and different values stay different after
  // normalization.
  double number() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(static_cast<int>(state_ >> 33 & 511) - 255) / 256.0;
  }
  Numbers numbers(std::size_t count, double scale = 1.0, double offset = 0.0) {
    Numbers values(count);
    for (double& value : values) {
      value = scale * number() + offset;
    }
    return values;
  }

 private:
  std::uint64_t state_;
};

template <typename E>
std::vector<typename E::Stored> stored(const Numbers& values) {
  std::vector<typename E::Stored> result;
  for (const double value : values) {
    result.push_back(E::stored(value));
  }
  return result;
}

template <typename E>
Numbers values_of(const std::vector<typename E::Stored>& stored) {
  Numbers result;
  for (const auto one : stored) {
    result.push_back(E::value(one));
  }
  return result;
}

// Rounds values as the kernels read them.
template <typename E>
Numbers rounded(const Numbers& values) {
  return values_of<E>(stored<E>(values));
}

// Device memory for elements of type E.
template <typename E>
struct Tensor : Buffer<typename E::Stored> {
  explicit Tensor(const Numbers& values) : Buffer<typename E::Stored>(stored<E>(values)) {}
  // NaN until written by a kernel.
  explicit Tensor(std::size_t count) : Tensor(Numbers(count, NAN)) {}

  Numbers numbers() const { return values_of<E>(this->values()); }
};

// Compares with `expected`, where NaN and infinity must match. Each value may differ by `tolerance` relative to its
// own size and to the root mean square, and by `absolute`.
inline void expect_near(
    const Numbers& actual, const Numbers& expected, double tolerance, const std::string& what, double absolute = 1e-12) {
  expect(actual.size() == expected.size(), what + ": wrong size");
  double sum = 0.0;
  std::size_t count = 0;
  for (const double value : expected) {
    if (std::isfinite(value)) {
      sum += value * value;
      ++count;
    }
  }
  const double typical = count == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(count));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], e = expected[i];
    const bool is_near = std::isnan(e) ? std::isnan(a)
        : std::isinf(e)               ? a == e
                                      : std::fabs(a - e) <= tolerance * (std::fabs(e) + typical) + absolute;
    if (!is_near) {
      expect(false, what + "[" + std::to_string(i) + "]: " + std::to_string(a) + ", not " + std::to_string(e) +
                        ", typical " + std::to_string(typical));
    }
  }
}

// Checksum of the bits, to compare runs.
class Checksum {
 public:
  template <typename T>
  void add(const Buffer<T>& buffer) {
    for (const T& value : buffer.values()) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof(value));
      sum_ = (sum_ ^ bits) * 1099511628211u;
    }
  }
  std::uint64_t value() const { return sum_; }

 private:
  std::uint64_t sum_ = 14695981039346656037u;
};

}  // namespace harness

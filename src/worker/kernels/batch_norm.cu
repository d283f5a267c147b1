// Batch normalization of a channels_last training batch with the addition and the ReLU that follow it: `rows` pixels
// of `channels` values each. The formulas are those of ffi/torch/batch_norm.cpp.
//
//   forward    batch_norm_statistics reads x; batch_norm_apply* reads x again and writes y
//   backward   batch_norm_gradients* reads dy and x; batch_norm_input_gradient* reads both again and writes dx
//
// A thread owns WIDTH neighboring channels. blockDim is (packets of a row, rows), with a power of two of rows;
// gridDim.x divides the channels into slices, gridDim.y the rows. Sums are fp32 within a block; the last block of a
// slice adds the sums of all blocks in fp64, in order of their numbers. Results depend only on the launch's shape.
// The second pass starts with the last rows, which are still in the L2 cache.

struct Shape {
  int rows;
  int channels;
};

constexpr int MAX_THREADS = 256;
constexpr int SUMS = 2;

DEVICE int thread_number() { return threadIdx.y * blockDim.x + threadIdx.x; }
DEVICE int thread_count() { return blockDim.x * blockDim.y; }
DEVICE int first_channel() { return (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH; }
DEVICE int first_row() { return blockIdx.y * blockDim.y + threadIdx.y; }
DEVICE int row_step() { return gridDim.y * blockDim.y; }

// Adds `sums` over the rows of all blocks. Returns true in the last block of the slice, whose `totals` then contain
// the sums of its channels. `partial` holds gridDim.y x SUMS x channels values. `tickets`, one for each slice, must
// be zero and are reset to zero.
DEVICE bool sum_over_rows(
    const float (*sums)[WIDTH], float* partial, u32* tickets, const Shape& shape, double (*totals)[MAX_THREADS]) {
  __shared__ float values[SUMS * WIDTH * MAX_THREADS];
  __shared__ double parts[SUMS][MAX_THREADS];
  __shared__ u32 is_last;
  const int thread = thread_number(), threads = thread_count(), packets = blockDim.x;
  UNROLLED for (int k = 0; k < SUMS; ++k) {
    UNROLLED for (int i = 0; i < WIDTH; ++i) values[(k * WIDTH + i) * MAX_THREADS + thread] = sums[k][i];
  }
  __syncthreads();
  for (int rows = blockDim.y / 2; rows > 0; rows /= 2) {
    if (static_cast<int>(threadIdx.y) < rows) {
      UNROLLED for (int j = 0; j < SUMS * WIDTH; ++j) {
        values[j * MAX_THREADS + thread] += values[j * MAX_THREADS + thread + rows * packets];
      }
    }
    __syncthreads();
  }
  const int slice = packets * WIDTH, base = blockIdx.x * slice;
  for (int j = thread; j < SUMS * slice; j += threads) {
    const int k = j / slice, c = j % slice;
    if (base + c < shape.channels) {
      partial[static_cast<u64>(blockIdx.y * SUMS + k) * shape.channels + base + c] =
          values[(k * WIDTH + c % WIDTH) * MAX_THREADS + c / WIDTH];
    }
  }
  __threadfence();
  __syncthreads();
  if (thread == 0) {
    is_last = atomicAdd(&tickets[blockIdx.x], 1u) == gridDim.y - 1;
    if (is_last) tickets[blockIdx.x] = 0;
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  // Surplus threads share the blocks of one channel.
  const int shares = threads / slice > 1 ? threads / slice : 1;
  for (int j = thread; j < slice * shares; j += threads) {
    const int c = j % slice, share = j / slice;
    double total[SUMS] = {};
    if (base + c < shape.channels) {
#pragma unroll 8
      for (int block = share; block < static_cast<int>(gridDim.y); block += shares) {
        const float* place = partial + static_cast<u64>(block) * SUMS * shape.channels + base + c;
        UNROLLED for (int k = 0; k < SUMS; ++k) total[k] += load_written(place + k * shape.channels);
      }
    }
    UNROLLED for (int k = 0; k < SUMS; ++k) parts[k][j] = total[k];
  }
  __syncthreads();
  for (int c = thread; c < slice; c += threads) {
    UNROLLED for (int k = 0; k < SUMS; ++k) {
      double total = parts[k][c];
      for (int share = 1; share < shares; ++share) total += parts[k][share * slice + c];
      totals[k][c] = total;
    }
  }
  return true;
}

// Calls `body(rows, c)` for the channels of the slice that this thread finishes.
template <typename Body>
DEVICE void for_each_total(const Shape& shape, const Body& body) {
  const int slice = blockDim.x * WIDTH, base = blockIdx.x * slice;
  for (int c = thread_number(); c < slice; c += thread_count()) {
    if (base + c < shape.channels) body(c, base + c);
  }
}

// `statistics` are means, 1 / sigma, and the slopes and offsets of y = x * slope + offset, `channels` values each.
KERNEL_AT_ONCE(2, batch_norm_statistics)(
    const Element* x, const float* weight, const float* bias, float* running_mean, float* running_variance, float* statistics,
    float* partial, u32* tickets, Shape shape, float momentum, float epsilon) {
  __shared__ double totals[SUMS][MAX_THREADS];
  constexpr int AT_ONCE = 4;
  const int c0 = first_channel(), step = row_step();
  float sums[SUMS][WIDTH] = {};
  if (c0 < shape.channels) {
    // Deviations from the first row instead of from zero, to avoid cancellation if the mean is large.
    float shift[WIDTH];
    unpack(load(x + c0), shift);
    for (int row = first_row(); row < shape.rows; row += AT_ONCE * step) {
      Packet packets[AT_ONCE];
      UNROLLED for (int u = 0; u < AT_ONCE; ++u) {
        if (row + u * step < shape.rows) packets[u] = load(x + static_cast<u64>(row + u * step) * shape.channels + c0);
      }
      UNROLLED for (int u = 0; u < AT_ONCE; ++u) {
        if (row + u * step < shape.rows) {
          float values[WIDTH];
          unpack(packets[u], values);
          UNROLLED for (int i = 0; i < WIDTH; ++i) {
            const float d = values[i] - shift[i];
            sums[0][i] += d;
            sums[1][i] += d * d;
          }
        }
      }
    }
  }
  if (!sum_over_rows(sums, partial, tickets, shape, totals)) return;
  for_each_total(shape, [&](int j, int c) {
    const double n = shape.rows, deviation = totals[0][j] / n;
    double variance = totals[1][j] / n - deviation * deviation;
    if (variance < 0.0) variance = 0.0;
    const float mean = static_cast<float>(to_float(x[c]) + deviation);
    const float inverse_sigma = static_cast<float>(1.0 / sqrt(variance + static_cast<double>(epsilon)));
    statistics[c] = mean;
    statistics[shape.channels + c] = inverse_sigma;
    statistics[2 * shape.channels + c] = inverse_sigma * weight[c];
    statistics[3 * shape.channels + c] = bias[c] - mean * (inverse_sigma * weight[c]);
    running_mean[c] += momentum * (mean - running_mean[c]);
    running_variance[c] += momentum * (static_cast<float>(variance * n / (n - 1.0)) - running_variance[c]);
  });
}

template <After AFTER>
DEVICE void apply(const Element* x, const Element* shortcut, const float* statistics, Element* y, u8* mask, const Shape& shape) {
  constexpr int AT_ONCE = 4;
  const int c0 = first_channel(), step = row_step();
  if (c0 >= shape.channels) return;
  float slope[WIDTH], offset[WIDTH];
  UNROLLED for (int i = 0; i < WIDTH; ++i) {
    slope[i] = statistics[2 * shape.channels + c0 + i];
    offset[i] = statistics[3 * shape.channels + c0 + i];
  }
  for (int row = first_row(); row < shape.rows; row += AT_ONCE * step) {
    Packet packets[AT_ONCE], added[AT_ONCE];
    UNROLLED for (int u = 0; u < AT_ONCE; ++u) {
      const u64 at = static_cast<u64>(shape.rows - 1 - row - u * step) * shape.channels + c0;
      if (row + u * step < shape.rows) {
        packets[u] = load(x + at);
        if (AFTER == SUM_AND_RELU) added[u] = load(shortcut + at);
      }
    }
    UNROLLED for (int u = 0; u < AT_ONCE; ++u) {
      const u64 at = static_cast<u64>(shape.rows - 1 - row - u * step) * shape.channels + c0;
      if (row + u * step < shape.rows) {
        float values[WIDTH], more[WIDTH];
        unpack(packets[u], values);
        if (AFTER == SUM_AND_RELU) unpack(added[u], more);
        u32 bits = 0;
        UNROLLED for (int i = 0; i < WIDTH; ++i) {
          float value = fmaf(values[i], slope[i], offset[i]);
          if (AFTER == SUM_AND_RELU) value += more[i];
          if (AFTER != NOTHING) {
            bits |= static_cast<u32>(is_on(value)) << i;
            value = is_on(value) ? value : 0.0f;
          }
          values[i] = value;
        }
        store(y + at, pack(values));
        if (AFTER == SUM_AND_RELU) mask[at / WIDTH] = static_cast<u8>(bits);
      }
    }
  }
}

KERNEL_AT_ONCE(2, batch_norm_apply)(const Element* x, const float* statistics, Element* y, Shape shape) {
  apply<NOTHING>(x, nullptr, statistics, y, nullptr, shape);
}

KERNEL_AT_ONCE(2, batch_norm_apply_relu)(const Element* x, const float* statistics, Element* y, Shape shape) {
  apply<RELU>(x, nullptr, statistics, y, nullptr, shape);
}

// `mask` has one bit per element: 1 if it passed the ReLU.
KERNEL_AT_ONCE(2, batch_norm_apply_sum_relu)(
    const Element* x, const Element* shortcut, const float* statistics, Element* y, u8* mask, Shape shape) {
  apply<SUM_AND_RELU>(x, shortcut, statistics, y, mask, shape);
}

// Adds the two sums of every channel over all blocks. Writes `dweight` and `dbias`, and the `coefficients` p, q, r of
// dx = dz * p + x * q + r, `channels` values each.
DEVICE void finish_gradients(
    const float (*sums)[WIDTH], const float* weight, const float* statistics, float* dweight, float* dbias,
    float* coefficients, float* partial, u32* tickets, const Shape& shape) {
  __shared__ double totals[SUMS][MAX_THREADS];
  if (!sum_over_rows(sums, partial, tickets, shape, totals)) return;
  for_each_total(shape, [&](int j, int c) {
    const double n = shape.rows, inverse_sigma = statistics[shape.channels + c], slope = inverse_sigma * weight[c];
    const double pull = -slope * totals[1][j] * inverse_sigma * inverse_sigma / n;
    dbias[c] = static_cast<float>(totals[0][j]);
    dweight[c] = static_cast<float>(totals[1][j] * inverse_sigma);
    coefficients[c] = static_cast<float>(slope);
    coefficients[shape.channels + c] = static_cast<float>(pull);
    coefficients[2 * shape.channels + c] = static_cast<float>(-slope * totals[0][j] / n - pull * statistics[c]);
  });
}

// Computes the sums of dz and of dz * (x - mean), where dz is the gradient before the ReLU. After an addition the
// output has two readers, whose gradients `dy` and `dy2` are added here, and dz, the gradient of the shortcut, is
// written.
template <After AFTER, bool TWO>
DEVICE void gradients(
    const Element* dy, const Element* dy2, const u8* mask, const Element* x, const float* weight, const float* statistics,
    Element* dz, float* dweight, float* dbias, float* coefficients, float* partial, u32* tickets, const Shape& shape) {
  constexpr int AT_ONCE = AFTER == SUM_AND_RELU ? 2 : 4;
  const int c0 = first_channel(), step = row_step();
  float sums[SUMS][WIDTH] = {};
  if (c0 < shape.channels) {
    float mean[WIDTH], slope[WIDTH], offset[WIDTH];
    UNROLLED for (int i = 0; i < WIDTH; ++i) {
      mean[i] = statistics[c0 + i];
      slope[i] = statistics[2 * shape.channels + c0 + i];
      offset[i] = statistics[3 * shape.channels + c0 + i];
    }
    for (int row = first_row(); row < shape.rows; row += AT_ONCE * step) {
      Packet of_dy[AT_ONCE], of_dy2[AT_ONCE], of_x[AT_ONCE];
      u32 bits[AT_ONCE];
      UNROLLED for (int u = 0; u < AT_ONCE; ++u) {
        const u64 at = static_cast<u64>(row + u * step) * shape.channels + c0;
        if (row + u * step < shape.rows) {
          of_dy[u] = load(dy + at);
          if (TWO) of_dy2[u] = load(dy2 + at);
          of_x[u] = load(x + at);
          if (AFTER == SUM_AND_RELU) bits[u] = mask[at / WIDTH];
        }
      }
      UNROLLED for (int u = 0; u < AT_ONCE; ++u) {
        const u64 at = static_cast<u64>(row + u * step) * shape.channels + c0;
        if (row + u * step < shape.rows) {
          float g[WIDTH], values[WIDTH];
          unpack(of_dy[u], g);
          if (TWO) {
            float more[WIDTH];
            unpack(of_dy2[u], more);
            UNROLLED for (int i = 0; i < WIDTH; ++i) g[i] += more[i];
          }
          unpack(of_x[u], values);
          UNROLLED for (int i = 0; i < WIDTH; ++i) {
            if (AFTER == RELU) g[i] = is_on(fmaf(values[i], slope[i], offset[i])) ? g[i] : 0.0f;
            if (AFTER == SUM_AND_RELU) g[i] = bits[u] >> i & 1u ? g[i] : 0.0f;
          }
          if (AFTER == SUM_AND_RELU) {
            const Packet rounded = pack(g);
            store(dz + at, rounded);
            unpack(rounded, g);
          }
          UNROLLED for (int i = 0; i < WIDTH; ++i) {
            sums[0][i] += g[i];
            sums[1][i] += g[i] * (values[i] - mean[i]);
          }
        }
      }
    }
  }
  finish_gradients(sums, weight, statistics, dweight, dbias, coefficients, partial, tickets, shape);
}

KERNEL_AT_ONCE(2, batch_norm_gradients)(
    const Element* dy, const Element* x, const float* weight, const float* statistics, float* dweight, float* dbias,
    float* coefficients, float* partial, u32* tickets, Shape shape) {
  gradients<NOTHING, false>(
      dy, nullptr, nullptr, x, weight, statistics, nullptr, dweight, dbias, coefficients, partial, tickets, shape);
}

KERNEL_AT_ONCE(2, batch_norm_gradients_relu)(
    const Element* dy, const Element* x, const float* weight, const float* statistics, float* dweight, float* dbias,
    float* coefficients, float* partial, u32* tickets, Shape shape) {
  gradients<RELU, false>(
      dy, nullptr, nullptr, x, weight, statistics, nullptr, dweight, dbias, coefficients, partial, tickets, shape);
}

KERNEL_AT_ONCE(2, batch_norm_gradients_sum_relu)(
    const Element* dy, const u8* mask, const Element* x, const float* weight, const float* statistics, Element* dz,
    float* dweight, float* dbias, float* coefficients, float* partial, u32* tickets, Shape shape) {
  gradients<SUM_AND_RELU, false>(
      dy, nullptr, mask, x, weight, statistics, dz, dweight, dbias, coefficients, partial, tickets, shape);
}

KERNEL_AT_ONCE(2, batch_norm_gradients_sum_relu_two)(
    const Element* dy, const Element* dy2, const u8* mask, const Element* x, const float* weight, const float* statistics,
    Element* dz, float* dweight, float* dbias, float* coefficients, float* partial, u32* tickets, Shape shape) {
  gradients<SUM_AND_RELU, true>(
      dy, dy2, mask, x, weight, statistics, dz, dweight, dbias, coefficients, partial, tickets, shape);
}

template <After AFTER>
DEVICE void input_gradient(
    const Element* dz, const Element* x, const float* statistics, const float* coefficients, Element* dx, const Shape& shape) {
  constexpr int AT_ONCE = 4;
  const int c0 = first_channel(), step = row_step();
  if (c0 >= shape.channels) return;
  float p[WIDTH], q[WIDTH], r[WIDTH], slope[WIDTH], offset[WIDTH];
  UNROLLED for (int i = 0; i < WIDTH; ++i) {
    p[i] = coefficients[c0 + i];
    q[i] = coefficients[shape.channels + c0 + i];
    r[i] = coefficients[2 * shape.channels + c0 + i];
    slope[i] = statistics[2 * shape.channels + c0 + i];
    offset[i] = statistics[3 * shape.channels + c0 + i];
  }
  for (int row = first_row(); row < shape.rows; row += AT_ONCE * step) {
    Packet of_dz[AT_ONCE], of_x[AT_ONCE];
    UNROLLED for (int u = 0; u < AT_ONCE; ++u) {
      const u64 at = static_cast<u64>(shape.rows - 1 - row - u * step) * shape.channels + c0;
      if (row + u * step < shape.rows) {
        of_dz[u] = load(dz + at);
        of_x[u] = load(x + at);
      }
    }
    UNROLLED for (int u = 0; u < AT_ONCE; ++u) {
      const u64 at = static_cast<u64>(shape.rows - 1 - row - u * step) * shape.channels + c0;
      if (row + u * step < shape.rows) {
        float g[WIDTH], values[WIDTH];
        unpack(of_dz[u], g);
        unpack(of_x[u], values);
        UNROLLED for (int i = 0; i < WIDTH; ++i) {
          if (AFTER == RELU) g[i] = is_on(fmaf(values[i], slope[i], offset[i])) ? g[i] : 0.0f;
          values[i] = fmaf(g[i], p[i], fmaf(values[i], q[i], r[i]));
        }
        store(dx + at, pack(values));
      }
    }
  }
}

KERNEL_AT_ONCE(2, batch_norm_input_gradient)(
    const Element* dz, const Element* x, const float* statistics, const float* coefficients, Element* dx, Shape shape) {
  input_gradient<NOTHING>(dz, x, statistics, coefficients, dx, shape);
}

KERNEL_AT_ONCE(2, batch_norm_input_gradient_relu)(
    const Element* dy, const Element* x, const float* statistics, const float* coefficients, Element* dx, Shape shape) {
  input_gradient<RELU>(dy, x, statistics, coefficients, dx, shape);
}

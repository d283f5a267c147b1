// Max pooling of channels_last images, alone or behind a batch normalization with ReLU, whose output then never reaches
// memory. The index of a window's largest value is kept in 8 bits instead of libtorch's 64.
//
//   forward    max_pool, or batch_norm_statistics and batch_norm_apply_relu_max_pool
//   backward   max_pool_gradient, or batch_norm_gradients_max_pool* and batch_norm_input_gradient_max_pool*
//
// Launched as the kernels of batch_norm.cu, over the rows of the output in forward and of the input in backward.

struct Window {
  int height, width, channels;
  int pooled_height, pooled_width;
  int kernel, stride, padding;
};

// Index of a window whose values the ReLU all stopped: no gradient passes.
constexpr u32 NOWHERE = 255;

// The windows [first, last] of one dimension that contain `pixel`.
struct Windows {
  int first, last;
};

DEVICE Windows windows_of(int pixel, const Window& window, int pooled) {
  const int end = pixel + window.padding, before = end - window.kernel;
  const int first = before < 0 ? 0 : before / window.stride + 1, last = end / window.stride;
  return {first, last < pooled ? last : pooled - 1};
}

template <bool NORMALIZED>
DEVICE void pool(const Element* x, const float* statistics, Element* y, u8* index, int rows, const Window& window) {
  const int c0 = first_channel(), step = row_step();
  if (c0 >= window.channels) return;
  float slope[WIDTH], offset[WIDTH];
  if (NORMALIZED) {
    UNROLLED for (int i = 0; i < WIDTH; ++i) {
      slope[i] = statistics[2 * window.channels + c0 + i];
      offset[i] = statistics[3 * window.channels + c0 + i];
    }
  }
  for (int row = first_row(); row < rows; row += step) {
    const int column = row % window.pooled_width, rest = row / window.pooled_width;
    const int line = rest % window.pooled_height, image = rest / window.pooled_height;
    const int top = line * window.stride - window.padding, left = column * window.stride - window.padding;
    float best[WIDTH];
    u32 where[WIDTH];
    UNROLLED for (int i = 0; i < WIDTH; ++i) {
      best[i] = bits_to_float(0xff800000u);  // -Inf
      where[i] = NOWHERE;
    }
    for (int h = 0; h < window.kernel; ++h) {
      for (int w = 0; w < window.kernel; ++w) {
        if (top + h < 0 || top + h >= window.height || left + w < 0 || left + w >= window.width) continue;
        const u64 pixel = (static_cast<u64>(image) * window.height + top + h) * window.width + left + w;
        float values[WIDTH];
        unpack(load(x + pixel * window.channels + c0), values);
        UNROLLED for (int i = 0; i < WIDTH; ++i) {
          float value = values[i];
          if (NORMALIZED) {
            value = fmaf(value, slope[i], offset[i]);
            value = is_on(value) ? value : 0.0f;
          }
          // The first of equal values, and NaN before any number, as in libtorch.
          if (value > best[i] || value != value) {
            best[i] = value;
            where[i] = h * window.kernel + w;
          }
        }
      }
    }
    const u64 at = static_cast<u64>(row) * window.channels + c0;
    UNROLLED for (int i = 0; i < WIDTH; ++i) {
      if (NORMALIZED && !is_on(best[i])) where[i] = NOWHERE;
    }
    store(y + at, pack(best));
    UNROLLED for (int i = 0; i < WIDTH; i += 4) {
      *reinterpret_cast<u32*>(index + at + i) = where[i] | where[i + 1] << 8 | where[i + 2] << 16 | where[i + 3] << 24;
    }
  }
}

KERNEL_AT_ONCE(2, max_pool)(const Element* x, Element* y, u8* index, int rows, Window window) {
  pool<false>(x, nullptr, y, index, rows, window);
}

KERNEL_AT_ONCE(2, batch_norm_apply_relu_max_pool)(
    const Element* x, const float* statistics, Element* y, u8* index, int rows, Window window) {
  pool<true>(x, statistics, y, index, rows, window);
}

// The gradient of the pooled images at input pixel `row`.
template <bool TWO>
DEVICE void gather(
    const Element* dy, const Element* dy2, const u8* index, int row, int c0, const Window& window, float* gradient) {
  const int column = row % window.width, rest = row / window.width;
  const int line = rest % window.height, image = rest / window.height;
  const Windows lines = windows_of(line, window, window.pooled_height);
  const Windows columns = windows_of(column, window, window.pooled_width);
  UNROLLED for (int i = 0; i < WIDTH; ++i) gradient[i] = 0.0f;
  for (int h = lines.first; h <= lines.last; ++h) {
    for (int w = columns.first; w <= columns.last; ++w) {
      const u64 pooled = (static_cast<u64>(image) * window.pooled_height + h) * window.pooled_width + w;
      const u64 at = pooled * window.channels + c0;
      const u32 own = (line + window.padding - h * window.stride) * window.kernel + column + window.padding - w * window.stride;
      float values[WIDTH];
      unpack(load(dy + at), values);
      if (TWO) {
        float more[WIDTH];
        unpack(load(dy2 + at), more);
        UNROLLED for (int i = 0; i < WIDTH; ++i) values[i] += more[i];
      }
      UNROLLED for (int i = 0; i < WIDTH; i += 4) {
        const u32 four = *reinterpret_cast<const u32*>(index + at + i);
        UNROLLED for (int j = 0; j < 4; ++j) {
          if ((four >> 8 * j & 255u) == own) gradient[i + j] += values[i + j];
        }
      }
    }
  }
}

KERNEL_AT_ONCE(2, max_pool_gradient)(const Element* dy, const u8* index, Element* dx, int rows, Window window) {
  const int c0 = first_channel(), step = row_step();
  if (c0 >= window.channels) return;
  for (int row = first_row(); row < rows; row += step) {
    float g[WIDTH];
    gather<false>(dy, nullptr, index, row, c0, window, g);
    store(dx + static_cast<u64>(row) * window.channels + c0, pack(g));
  }
}

template <bool TWO>
DEVICE void pool_gradients(
    const Element* dy, const Element* dy2, const u8* index, const Element* x, const float* weight, const float* statistics,
    float* dweight, float* dbias, float* coefficients, float* partial, u32* tickets, int rows, const Window& window) {
  const Shape shape{rows, window.channels};
  const int c0 = first_channel(), step = row_step();
  float sums[SUMS][WIDTH] = {};
  if (c0 < shape.channels) {
    float mean[WIDTH];
    UNROLLED for (int i = 0; i < WIDTH; ++i) mean[i] = statistics[c0 + i];
    for (int row = first_row(); row < rows; row += step) {
      float g[WIDTH], values[WIDTH];
      unpack(load(x + static_cast<u64>(row) * shape.channels + c0), values);
      gather<TWO>(dy, dy2, index, row, c0, window, g);
      UNROLLED for (int i = 0; i < WIDTH; ++i) {
        sums[0][i] += g[i];
        sums[1][i] += g[i] * (values[i] - mean[i]);
      }
    }
  }
  finish_gradients(sums, weight, statistics, dweight, dbias, coefficients, partial, tickets, shape);
}

KERNEL_AT_ONCE(2, batch_norm_gradients_max_pool)(
    const Element* dy, const u8* index, const Element* x, const float* weight, const float* statistics, float* dweight,
    float* dbias, float* coefficients, float* partial, u32* tickets, int rows, Window window) {
  pool_gradients<false>(
      dy, nullptr, index, x, weight, statistics, dweight, dbias, coefficients, partial, tickets, rows, window);
}

KERNEL_AT_ONCE(2, batch_norm_gradients_max_pool_two)(
    const Element* dy, const Element* dy2, const u8* index, const Element* x, const float* weight, const float* statistics,
    float* dweight, float* dbias, float* coefficients, float* partial, u32* tickets, int rows, Window window) {
  pool_gradients<true>(dy, dy2, index, x, weight, statistics, dweight, dbias, coefficients, partial, tickets, rows, window);
}

template <bool TWO>
DEVICE void pool_input_gradient(
    const Element* dy, const Element* dy2, const u8* index, const Element* x, const float* coefficients, Element* dx, int rows,
    const Window& window) {
  const int c0 = first_channel(), step = row_step();
  if (c0 >= window.channels) return;
  float p[WIDTH], q[WIDTH], r[WIDTH];
  UNROLLED for (int i = 0; i < WIDTH; ++i) {
    p[i] = coefficients[c0 + i];
    q[i] = coefficients[window.channels + c0 + i];
    r[i] = coefficients[2 * window.channels + c0 + i];
  }
  for (int from_end = first_row(); from_end < rows; from_end += step) {
    const int row = rows - 1 - from_end;
    const u64 at = static_cast<u64>(row) * window.channels + c0;
    float g[WIDTH], values[WIDTH];
    unpack(load(x + at), values);
    gather<TWO>(dy, dy2, index, row, c0, window, g);
    UNROLLED for (int i = 0; i < WIDTH; ++i) values[i] = fmaf(g[i], p[i], fmaf(values[i], q[i], r[i]));
    store(dx + at, pack(values));
  }
}

KERNEL_AT_ONCE(2, batch_norm_input_gradient_max_pool)(
    const Element* dy, const u8* index, const Element* x, const float* coefficients, Element* dx, int rows, Window window) {
  pool_input_gradient<false>(dy, nullptr, index, x, coefficients, dx, rows, window);
}

KERNEL_AT_ONCE(2, batch_norm_input_gradient_max_pool_two)(
    const Element* dy, const Element* dy2, const u8* index, const Element* x, const float* coefficients, Element* dx, int rows,
    Window window) {
  pool_input_gradient<true>(dy, dy2, index, x, coefficients, dx, rows, window);
}

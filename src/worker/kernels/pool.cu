// Max pooling of channels_last images, alone or after a batch normalization with ReLU, whose output is then never
// stored in memory. The index of a window's maximum is stored in 8 bits instead of libtorch's 64.
//
//   forward    max_pool, or batch_norm_statistics and batch_norm_apply_relu_max_pool
//   backward   max_pool_gradient, or batch_norm_gradients_max_pool* and batch_norm_input_gradient_max_pool*
//
// Launched like the kernels of batch_norm.cu: over the rows of the output in forward, over those of the input in
// max_pool_gradient, and over patches in the other kernels of backward. After a normalization, windows are 3 x 3
// pixels with stride 2 and padding 1, as in the stem of every ResNet, so each kernel loads everything that it needs
// of a row at once.

struct Window {
  int height, width, channels;
  int pooled_height, pooled_width;
  int kernel, stride, padding;
};

// Index of a window without positive values: the ReLU blocks its gradient.
constexpr u32 NOWHERE = 255;

struct Pixel {
  int image, line, column;
};

DEVICE Pixel pixel_of(int row, int height, int width) {
  const int rest = row / width;
  return {rest / height, rest % height, row % width};
}

// Maximum of each channel of a window, and its index.
struct Largest {
  float values[WIDTH];
  u32 where[WIDTH];
};

DEVICE void begin(Largest& largest) {
  UNROLLED for (int i = 0; i < WIDTH; ++i) {
    largest.values[i] = bits_to_float(0xff800000u);  // -Inf
    largest.where[i] = NOWHERE;
  }
}

// The first of equal values is kept, and NaN is larger than any number, as in libtorch.
DEVICE void add(Largest& largest, const float* values, u32 where) {
  UNROLLED for (int i = 0; i < WIDTH; ++i) {
    if (values[i] > largest.values[i] || values[i] != values[i]) {
      largest.values[i] = values[i];
      largest.where[i] = where;
    }
  }
}

DEVICE void store(const Largest& largest, Element* y, u8* index) {
  store(y, pack(largest.values));
  UNROLLED for (int i = 0; i < WIDTH; i += 4) {
    const u32* where = largest.where + i;
    *reinterpret_cast<u32*>(index + i) = where[0] | where[1] << 8 | where[2] << 16 | where[3] << 24;
  }
}

KERNEL_AT_ONCE(2, max_pool)(const Element* x, Element* y, u8* index, int rows, Window window) {
  const int c0 = first_channel(), step = row_step();
  if (c0 >= window.channels) return;
  for (int row = first_row(); row < rows; row += step) {
    const Pixel pooled = pixel_of(row, window.pooled_height, window.pooled_width);
    const int top = pooled.line * window.stride - window.padding, left = pooled.column * window.stride - window.padding;
    Largest largest;
    begin(largest);
    for (int h = 0; h < window.kernel; ++h) {
      for (int w = 0; w < window.kernel; ++w) {
        if (top + h < 0 || top + h >= window.height || left + w < 0 || left + w >= window.width) continue;
        const u64 pixel = (static_cast<u64>(pooled.image) * window.height + top + h) * window.width + left + w;
        float values[WIDTH];
        unpack(load(x + pixel * window.channels + c0), values);
        add(largest, values, h * window.kernel + w);
      }
    }
    const u64 at = static_cast<u64>(row) * window.channels + c0;
    store(largest, y + at, index + at);
  }
}

KERNEL_AT_ONCE(2, batch_norm_apply_relu_max_pool)(
    const Element* x, const float* statistics, Element* y, u8* index, int rows, Window window) {
  const int c0 = first_channel(), step = row_step();
  if (c0 >= window.channels) return;
  float slope[WIDTH], offset[WIDTH];
  UNROLLED for (int i = 0; i < WIDTH; ++i) {
    slope[i] = statistics[2 * window.channels + c0 + i];
    offset[i] = statistics[3 * window.channels + c0 + i];
  }
  // The last rows come first: those of x are still in the L2 cache.
  for (int from_end = first_row(); from_end < rows; from_end += step) {
    const int row = rows - 1 - from_end;
    const Pixel pooled = pixel_of(row, window.pooled_height, window.pooled_width);
    const int top = 2 * pooled.line - 1, left = 2 * pooled.column - 1;
    Packet packets[9];
    bool is_inside[9];
    UNROLLED for (int k = 0; k < 9; ++k) {
      const int line = top + k / 3, column = left + k % 3;
      is_inside[k] = line >= 0 && line < window.height && column >= 0 && column < window.width;
      const u64 pixel = (static_cast<u64>(pooled.image) * window.height + line) * window.width + column;
      if (is_inside[k]) packets[k] = load(x + pixel * window.channels + c0);
    }
    Largest largest;
    begin(largest);
    UNROLLED for (int k = 0; k < 9; ++k) {
      if (is_inside[k]) {
        float values[WIDTH];
        unpack(packets[k], values);
        UNROLLED for (int i = 0; i < WIDTH; ++i) {
          values[i] = fmaf(values[i], slope[i], offset[i]);
          values[i] = is_on(values[i]) ? values[i] : 0.0f;
        }
        add(largest, values, k);
      }
    }
    UNROLLED for (int i = 0; i < WIDTH; ++i) {
      if (!is_on(largest.values[i])) largest.where[i] = NOWHERE;
    }
    const u64 at = static_cast<u64>(row) * window.channels + c0;
    store(largest, y + at, index + at);
  }
}

// Adds the gradient of a window to `gradient`, for the channels whose maximum is at `own`.
DEVICE void add_gradient(float* gradient, const float* values, const u8* index, u32 own) {
  UNROLLED for (int i = 0; i < WIDTH; i += 4) {
    const u32 four = *reinterpret_cast<const u32*>(index + i);
    UNROLLED for (int j = 0; j < 4; ++j) {
      if ((four >> 8 * j & 255u) == own) gradient[i + j] += values[i + j];
    }
  }
}

// Returns the first window in one dimension that contains `pixel`.
DEVICE int first_window(int pixel, const Window& window) {
  const int before = pixel + window.padding - window.kernel;
  return before < 0 ? 0 : before / window.stride + 1;
}

KERNEL_AT_ONCE(2, max_pool_gradient)(const Element* dy, const u8* index, Element* dx, int rows, Window window) {
  const int c0 = first_channel(), step = row_step();
  if (c0 >= window.channels) return;
  for (int row = first_row(); row < rows; row += step) {
    const Pixel pixel = pixel_of(row, window.height, window.width);
    const int line = pixel.line + window.padding, column = pixel.column + window.padding;
    float gradient[WIDTH] = {};
    for (int h = first_window(pixel.line, window); h <= line / window.stride && h < window.pooled_height; ++h) {
      for (int w = first_window(pixel.column, window); w <= column / window.stride && w < window.pooled_width; ++w) {
        const u64 pooled = (static_cast<u64>(pixel.image) * window.pooled_height + h) * window.pooled_width + w;
        const u64 at = pooled * window.channels + c0;
        float values[WIDTH];
        unpack(load(dy + at), values);
        add_gradient(gradient, values, index + at, (line - h * window.stride) * window.kernel + column - w * window.stride);
      }
    }
    store(dx + static_cast<u64>(row) * window.channels + c0, pack(gradient));
  }
}

// The input pixels (2a, 2b), (2a, 2b + 1), (2a + 1, 2b) and (2a + 1, 2b + 1), which are only in the windows (a, b),
// (a, b + 1), (a + 1, b) and (a + 1, b + 1). There are as many patches as windows.
struct Patch {
  u64 at[4];
  bool is_inside[4];
  float gradients[4][WIDTH];
};

template <bool TWO>
DEVICE void load_patch(
    Patch& patch, const Element* dy, const Element* dy2, const u8* index, int number, int c0, const Window& window) {
  const Pixel first = pixel_of(number, window.pooled_height, window.pooled_width);
  Packet of_dy[4], of_dy2[4];
  u32 indices[4][WIDTH / 4];
  UNROLLED for (int k = 0; k < 4; ++k) {
    const int line = first.line + k / 2, column = first.column + k % 2;
    const bool is_there = line < window.pooled_height && column < window.pooled_width;
    const u64 pooled = (static_cast<u64>(first.image) * window.pooled_height + line) * window.pooled_width + column;
    const u64 at = pooled * window.channels + c0;
    of_dy[k] = of_dy2[k] = Packet{};
    UNROLLED for (int i = 0; i < WIDTH / 4; ++i) indices[k][i] = 0xffffffffu;
    if (is_there) {
      of_dy[k] = load(dy + at);
      if (TWO) of_dy2[k] = load(dy2 + at);
      UNROLLED for (int i = 0; i < WIDTH / 4; ++i) indices[k][i] = reinterpret_cast<const u32*>(index + at)[i];
    }
    const int own_line = 2 * first.line + k / 2, own_column = 2 * first.column + k % 2;
    patch.is_inside[k] = own_line < window.height && own_column < window.width;
    const u64 pixel = (static_cast<u64>(first.image) * window.height + own_line) * window.width + own_column;
    patch.at[k] = pixel * window.channels + c0;
    UNROLLED for (int i = 0; i < WIDTH; ++i) patch.gradients[k][i] = 0.0f;
  }
  UNROLLED for (int k = 0; k < 4; ++k) {
    float values[WIDTH];
    unpack(of_dy[k], values);
    if (TWO) {
      float more[WIDTH];
      unpack(of_dy2[k], more);
      UNROLLED for (int i = 0; i < WIDTH; ++i) values[i] += more[i];
    }
    // In window k, pixel p of the patch has line p / 2 + 1 - 2 * (k / 2) and column p % 2 + 1 - 2 * (k % 2).
    UNROLLED for (int p = 0; p < 4; ++p) {
      const int line = p / 2 + 1 - 2 * (k / 2), column = p % 2 + 1 - 2 * (k % 2);
      if (line < 0 || column < 0) continue;
      UNROLLED for (int i = 0; i < WIDTH; ++i) {
        const u32 where = indices[k][i / 4] >> 8 * (i % 4) & 255u;
        if (where == static_cast<u32>(3 * line + column)) patch.gradients[p][i] += values[i];
      }
    }
  }
}

template <bool TWO>
DEVICE void pool_gradients(
    const Element* dy, const Element* dy2, const u8* index, const Element* x, const float* weight, const float* statistics,
    float* dweight, float* dbias, float* coefficients, float* partial, u32* tickets, int rows, int patches,
    const Window& window) {
  const Shape shape{rows, window.channels};
  const int c0 = first_channel(), step = row_step();
  float sums[SUMS][WIDTH] = {};
  if (c0 < shape.channels) {
    float mean[WIDTH];
    UNROLLED for (int i = 0; i < WIDTH; ++i) mean[i] = statistics[c0 + i];
    for (int number = first_row(); number < patches; number += step) {
      Patch patch;
      load_patch<TWO>(patch, dy, dy2, index, number, c0, window);
      UNROLLED for (int p = 0; p < 4; ++p) {
        if (patch.is_inside[p]) {
          float values[WIDTH];
          unpack(load(x + patch.at[p]), values);
          UNROLLED for (int i = 0; i < WIDTH; ++i) {
            sums[0][i] += patch.gradients[p][i];
            sums[1][i] += patch.gradients[p][i] * (values[i] - mean[i]);
          }
        }
      }
    }
  }
  finish_gradients(sums, weight, statistics, dweight, dbias, coefficients, partial, tickets, shape);
}

KERNEL_AT_ONCE(2, batch_norm_gradients_max_pool)(
    const Element* dy, const u8* index, const Element* x, const float* weight, const float* statistics, float* dweight,
    float* dbias, float* coefficients, float* partial, u32* tickets, int rows, int patches, Window window) {
  pool_gradients<false>(
      dy, nullptr, index, x, weight, statistics, dweight, dbias, coefficients, partial, tickets, rows, patches, window);
}

KERNEL_AT_ONCE(2, batch_norm_gradients_max_pool_two)(
    const Element* dy, const Element* dy2, const u8* index, const Element* x, const float* weight, const float* statistics,
    float* dweight, float* dbias, float* coefficients, float* partial, u32* tickets, int rows, int patches, Window window) {
  pool_gradients<true>(
      dy, dy2, index, x, weight, statistics, dweight, dbias, coefficients, partial, tickets, rows, patches, window);
}

template <bool TWO>
DEVICE void pool_input_gradient(
    const Element* dy, const Element* dy2, const u8* index, const Element* x, const float* coefficients, Element* dx,
    int patches, const Window& window) {
  const int c0 = first_channel(), step = row_step();
  if (c0 >= window.channels) return;
  float p[WIDTH], q[WIDTH], r[WIDTH];
  UNROLLED for (int i = 0; i < WIDTH; ++i) {
    p[i] = coefficients[c0 + i];
    q[i] = coefficients[window.channels + c0 + i];
    r[i] = coefficients[2 * window.channels + c0 + i];
  }
  for (int from_end = first_row(); from_end < patches; from_end += step) {
    Patch patch;
    load_patch<TWO>(patch, dy, dy2, index, patches - 1 - from_end, c0, window);
    UNROLLED for (int k = 0; k < 4; ++k) {
      if (patch.is_inside[k]) {
        float values[WIDTH];
        unpack(load(x + patch.at[k]), values);
        UNROLLED for (int i = 0; i < WIDTH; ++i) {
          values[i] = fmaf(patch.gradients[k][i], p[i], fmaf(values[i], q[i], r[i]));
        }
        store(dx + patch.at[k], pack(values));
      }
    }
  }
}

KERNEL_AT_ONCE(2, batch_norm_input_gradient_max_pool)(
    const Element* dy, const u8* index, const Element* x, const float* coefficients, Element* dx, int patches, Window window) {
  pool_input_gradient<false>(dy, nullptr, index, x, coefficients, dx, patches, window);
}

KERNEL_AT_ONCE(2, batch_norm_input_gradient_max_pool_two)(
    const Element* dy, const Element* dy2, const u8* index, const Element* x, const float* coefficients, Element* dx,
    int patches, Window window) {
  pool_input_gradient<true>(dy, dy2, index, x, coefficients, dx, patches, window);
}

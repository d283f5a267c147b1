// A 1x1 convolution with the batch normalization, the addition and the ReLU that follow it, without storing the
// convolution's raw output: statistics and gradients of the normalization are derived from products of the small
// input with itself and with the gradient of the output. `rows` pixels (channels_last) of `inputs` values in x and of
// `channels` values in the shortcut z and in y.
//
//   forward    G0 = x^T x, s0 = sum of x; mean = W s0 / n; variance = diag(W (G0/n - s0 s0^T/n^2) W^T)
//              y = after(slope * (x W^T) + offset [+ z])
//   backward   dz = mask * (dy [+ dy2]); G = dz^T x, s = sum of dz; dbeta = s; dgamma = inv * (rowsum(G * W) - mean * s)
//              p = slope, q = -slope * dgamma * inv / n, r = -slope * s / n - q * mean
//              dW = p G + q (W G0) + r s0^T; D1 = dz (p W); dx = D1 + x (W^T diag(q) W) + r^T W
//
// x, W, z, y and their gradients are of type Element. There are 64 inputs; `channels` is a multiple of 64, at most
// 256. n is the number of rows. Statistics are those of batch_norm.cu: means, 1 / sigma, slopes and offsets. For fp32
// only the small kernels exist (`statistics_finish`, `gradient_finish`, `gradient_matrix`):
// ffi/torch/pointwise_cuda.cpp uses cuBLAS for its products.
//
// Blocks have 256 threads in x. `tiles` is the number of blocks, each of which processes every tiles-th tile of rows:
// at most the number of tiles, usually two blocks per multiprocessor. Only this number determines the order of the
// sums.
//
//   kernel (arguments in order)                                                grid              shared    rows of a tile
//   pointwise_statistics_64(x, partial, shape)                                 tiles             49152     128
//     partial: tiles x 65 x 64 floats
//   pointwise_sum(partial, totals, parts, length)                              ceil(length/64)   -
//     totals: G0, then s0; parts: the tiles above; length: 65 x 64
//   pointwise_statistics_finish(gram, sums, weight, gamma, beta,               channels / 8      -
//       running_mean, running_variance, statistics, weight_gram, shape, momentum, epsilon)
//     gram, sums: G0, s0; weight_gram: W G0, channels x 64 floats, for the backward pass
//   pointwise_apply_linear_64(x, weight, statistics, y, shape)                 1, tiles          98304     32
//   pointwise_apply_sum_relu_64(x, weight, shortcut, statistics, y, mask,      1, tiles          98304     32
//       shape)
//     mask: one bit for each value of y
//   pointwise_gradients[_relu][_two](dy, dy2, mask, x, weight, statistics,     tiles             92160     32
//       dz, d1, partial, shape)
//     relu: with a mask; two: with dy2. Unused arguments are null, and dz if there is no shortcut.
//     partial: tiles x 65 x channels floats
//   pointwise_gradient_finish(partial, parts, weight, statistics,              channels / 2      -
//       weight_gram, sums, dweight, dgamma, dbeta, coefficients, shape)
//     parts: the tiles above; sums: s0; coefficients: p, q, r, 3 x channels floats
//   pointwise_gradient_matrix(weight, coefficients, matrix, row, shape)        64                -
//     matrix: 64 x 64 of type Element; row: 64 floats
//   pointwise_input_gradient(d1, x, matrix, row, dx, shape)                    1, tiles          58880     64
//
// `shared` is dynamic shared memory: a kernel with more than 48 KiB requires cuFuncSetAttribute(
// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES). Two blocks of every kernel fit on a multiprocessor.

struct Shape {
  int rows;
  int inputs;
  int channels;
};

constexpr int INPUTS = 64, THREADS = 256;

#ifndef ELEMENT_FLOAT
constexpr int X_PACKETS = INPUTS / WIDTH, WARPS = 8;
constexpr int MOST_SHARED = 99 * 1024;
SHARED_MEMORY(shared_memory, MOST_SHARED);

DEVICE Element* shared_elements(int offset) { return reinterpret_cast<Element*>(shared_memory + offset); }
DEVICE int tiles_of(int rows, int tile_rows) { return (rows + tile_rows - 1) / tile_rows; }

// ---- y = after(slope * (x W^T) + offset [+ shortcut]) ----

// Buffers for tiles of x and of the shortcut in shared memory: the current tile, and those being copied.
constexpr int STAGES = 3;

// Work of a block: each warp multiplies ROW_BLOCKS blocks of 16 rows by the weights of 32 channels, which it keeps in
// registers.
template <int CHANNEL_WARPS_, int ROW_BLOCKS_>
struct Plan {
  static constexpr int CHANNEL_WARPS = CHANNEL_WARPS_, ROW_BLOCKS = ROW_BLOCKS_;
  static constexpr int CHANNELS = 32 * CHANNEL_WARPS, ROWS = 16 * ROW_BLOCKS * (WARPS / CHANNEL_WARPS);
  static constexpr int WEIGHT_BYTES = CHANNELS * INPUTS * 2, X_BYTES = ROWS * INPUTS * 2, MASK_BYTES = ROWS * CHANNELS / 8;
  static constexpr int STAGE_BYTES = X_BYTES + ROWS * CHANNELS * 2;
  static constexpr int MASK_OFFSET = WEIGHT_BYTES + STAGES * STAGE_BYTES;
  static constexpr int SLOPE_OFFSET = MASK_OFFSET + 2 * MASK_BYTES;
  static constexpr int BYTES = SLOPE_OFFSET + 2 * CHANNELS * 4;
};

typedef Plan<8, 2> Apply;
typedef Plan<2, 1> InputGradient;
static_assert(Apply::BYTES <= MOST_SHARED && InputGradient::BYTES <= MOST_SHARED, "shared memory");

// Order of the weights' rows in shared memory, such that a thread's eight results of a row are neighboring channels:
// lane 4g + t has results 8h + 2t + e (e = 0, 1) of four products of 8 columns, h = 0..3, which are channels 8t + 2h
// + e.
DEVICE int channel_of_weight_row(int row) { return (row & ~31) + 8 * ((row & 7) >> 1) + 2 * ((row & 31) >> 3) + (row & 1); }

template <typename P, bool HAS_SHORTCUT, bool HAS_RELU, bool HAS_SLOPE>
DEVICE void apply(
    const Element* x, const Element* weight, const Element* shortcut, const float* slopes, const float* offsets, Element* y,
    u8* mask, int rows, int channels) {
  constexpr int STEPS = INPUTS / 16;
  const int thread = threadIdx.x, lane = lane_number(), warp = thread / 32;
  const int channel_warp = warp % P::CHANNEL_WARPS, row_warp = warp / P::CHANNEL_WARPS;
  const int base = blockIdx.x * P::CHANNELS, channel = base + channel_warp * 32 + lane % 4 * WIDTH;
  // Uniform within a warp.
  const bool has_channels = channel < channels;
  const int tiles = tiles_of(rows, P::ROWS);

  const Tile weights = {shared_elements(0), X_PACKETS};
  for (int i = thread; i < P::CHANNELS * X_PACKETS; i += THREADS) {
    const int row = i / X_PACKETS, packet = i % X_PACKETS, c = base + channel_of_weight_row(row);
    Packet values = {};
    if (c < channels) values = load(weight + c * INPUTS + packet * WIDTH);
    store(packet_at(weights, row, packet), values);
  }
  float* const slope_and_offset = reinterpret_cast<float*>(shared_memory + P::SLOPE_OFFSET);
  if (thread < P::CHANNELS && base + thread < channels) {
    if (HAS_SLOPE) slope_and_offset[thread] = slopes[base + thread];
    slope_and_offset[P::CHANNELS + thread] = offsets[base + thread];
  }

  // The last rows come first: those of x are still in the L2 cache.
  const auto first_row = [&](int tile) { return (tiles - 1 - tile) * P::ROWS; };
  const auto x_tile = [&](int stage) { return Tile{shared_elements(P::WEIGHT_BYTES + stage * P::STAGE_BYTES), X_PACKETS}; };
  // Row of the tile for a result of this thread, and the address in shared memory of the shortcut's values for it,
  // which only this thread writes and reads.
  const auto row_of = [&](int block, int half) { return (row_warp * P::ROW_BLOCKS + block) * 16 + half * 8 + lane / 4; };
  const auto shortcut_at = [&](int stage, int block, int half) {
    return shared_elements(P::WEIGHT_BYTES + stage * P::STAGE_BYTES + P::X_BYTES) + ((block * 2 + half) * THREADS + thread) * WIDTH;
  };
  const auto request = [&](int tile, int stage) {
    if (tile < tiles) {
      const int first = first_row(tile);
      UNROLLED for (int i = thread; i < P::ROWS * X_PACKETS; i += THREADS) {
        const int row = i / X_PACKETS, packet = i % X_PACKETS;
        const bool is_there = first + row < rows;
        copy_16(packet_at(x_tile(stage), row, packet), x + static_cast<u64>(is_there ? first + row : 0) * INPUTS + packet * WIDTH, is_there);
      }
      if (HAS_SHORTCUT && has_channels) {
        UNROLLED for (int b = 0; b < P::ROW_BLOCKS; ++b) {
          UNROLLED for (int half = 0; half < 2; ++half) {
            const int row = first + row_of(b, half);
            copy_16(shortcut_at(stage, b, half), shortcut + static_cast<u64>(row < rows ? row : 0) * channels + channel, row < rows);
          }
        }
      }
    }
    end_copies();
  };

  const int step = gridDim.y;
  UNROLLED for (int s = 0; s < STAGES - 1; ++s) request(blockIdx.y + s * step, s);
  __syncthreads();
  Fragment kept[2][STEPS];
  UNROLLED for (int k = 0; k < STEPS; ++k) {
    UNROLLED for (int h = 0; h < 2; ++h) kept[h][k] = load_fragment(weights, channel_warp * 32 + 16 * h, 2 * k);
  }

  // A tile's mask is written to shared memory, and to global memory after the next barrier.
  const auto store_mask = [&](int tile, int buffer) {
    constexpr int WORDS = P::CHANNELS / 64;
    for (int i = thread; i < P::ROWS * WORDS; i += THREADS) {
      const int row = first_row(tile) + i / WORDS, c = base + i % WORDS * 64;
      if (row < rows && c < channels) {
        *reinterpret_cast<u64*>(mask + (static_cast<u64>(row) * channels + c) / 8) =
            reinterpret_cast<const u64*>(shared_memory + P::MASK_OFFSET + buffer * P::MASK_BYTES)[i];
      }
    }
  };

  int stage = 0, count = 0, previous = -1;
  for (int tile = blockIdx.y; tile < tiles; tile += step, ++count) {
    const int first = first_row(tile);
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    // Into the stage of the previous tile, which no warp reads any more.
    request(tile + (STAGES - 1) * step, stage == 0 ? STAGES - 1 : stage - 1);
    if (HAS_RELU && previous >= 0) store_mask(previous, (count + 1) % 2);
    previous = tile;
    if (has_channels) {
      u8* const bits_of_tile = shared_memory + P::MASK_OFFSET + count % 2 * P::MASK_BYTES;
      UNROLLED for (int b = 0; b < P::ROW_BLOCKS; ++b) {
        float sums[2][2][4] = {};
        UNROLLED for (int k = 0; k < STEPS; ++k) {
          const Fragment left = load_fragment(x_tile(stage), (row_warp * P::ROW_BLOCKS + b) * 16, 2 * k);
          UNROLLED for (int h = 0; h < 2; ++h) multiply(sums[h], left, kept[h][k]);
        }
        float slope[WIDTH], offset[WIDTH];
        UNROLLED for (int i = 0; i < WIDTH; ++i) {
          if (HAS_SLOPE) slope[i] = slope_and_offset[channel - base + i];
          offset[i] = slope_and_offset[P::CHANNELS + channel - base + i];
        }
        UNROLLED for (int half = 0; half < 2; ++half) {
          const int row = row_of(b, half);
          if (first + row < rows) {
            float values[WIDTH], more[WIDTH];
            if (HAS_SHORTCUT) unpack(load(shortcut_at(stage, b, half)), more);
            u32 bits = 0;
            UNROLLED for (int i = 0; i < WIDTH; ++i) {
              const float product = sums[i / 4][i / 2 % 2][half * 2 + i % 2];
              float value = HAS_SLOPE ? fmaf(product, slope[i], offset[i]) : product + offset[i];
              if (HAS_SHORTCUT) value += more[i];
              if (HAS_RELU) {
                bits |= static_cast<u32>(is_on(value)) << i;
                value = is_on(value) ? value : 0.0f;
              }
              values[i] = value;
            }
            store(y + static_cast<u64>(first + row) * channels + channel, pack(values));
            if (HAS_RELU) bits_of_tile[row * (P::CHANNELS / 8) + channel_warp * 4 + lane % 4] = static_cast<u8>(bits);
          }
        }
      }
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }
  if (HAS_RELU && previous >= 0) {
    __syncthreads();
    store_mask(previous, (count + 1) % 2);
  }
}

KERNEL_AT_ONCE(2, pointwise_apply_linear_64)(
    const Element* x, const Element* weight, const float* statistics, Element* y, Shape shape) {
  const float* const slopes = statistics + 2 * shape.channels;
  apply<Apply, false, false, true>(
      x, weight, nullptr, slopes, slopes + shape.channels, y, nullptr, shape.rows, shape.channels);
}

KERNEL_AT_ONCE(2, pointwise_apply_sum_relu_64)(
    const Element* x, const Element* weight, const Element* shortcut, const float* statistics, Element* y, u8* mask,
    Shape shape) {
  const float* const slopes = statistics + 2 * shape.channels;
  apply<Apply, true, true, true>(
      x, weight, shortcut, slopes, slopes + shape.channels, y, mask, shape.rows, shape.channels);
}

// dx = d1 + x M + row; the matrix M is symmetric.
KERNEL_AT_ONCE(2, pointwise_input_gradient)(
    const Element* d1, const Element* x, const Element* matrix, const float* row, Element* dx, Shape shape) {
  apply<InputGradient, true, false, false>(x, matrix, d1, nullptr, row, dx, nullptr, shape.rows, INPUTS);
}

// ---- Products over rows: G = dz^T x and G0 = x^T x ----

// A warp's part of one of these products: 32 rows of the result, 64 columns. sums[a][b][h]: rows 16a + g and 16a + g + 8,
// columns 16b + 8h + 2t and the next one.
typedef float Products[2][4][2][4];

// Adds 16 pixels, starting at `row` in both tiles, of the columns starting at packets `left_packet` and
// `right_packet`.
DEVICE void add_products(Products& sums, const Tile& left, int left_packet, const Tile& right, int right_packet, int row) {
  const Fragment upper = load_fragment_transposed(left, row, left_packet), lower = load_fragment_transposed(left, row, left_packet + 2);
  UNROLLED for (int b = 0; b < 4; ++b) {
    const Fragment column = load_fragment_transposed(right, row, right_packet + 2 * b);
    multiply(sums[0][b], upper, column);
    multiply(sums[1][b], lower, column);
  }
}

// Calls `body(row, column, first, second)` for neighboring results of this thread.
template <typename Body>
DEVICE void for_each_pair(const Products& sums, const Body& body) {
  const int g = lane_number() / 4, t = lane_number() % 4;
  UNROLLED for (int a = 0; a < 2; ++a) {
    UNROLLED for (int b = 0; b < 4; ++b) {
      UNROLLED for (int h = 0; h < 2; ++h) {
        UNROLLED for (int half = 0; half < 2; ++half) {
          body(16 * a + 8 * half + g, 16 * b + 8 * h + 2 * t, sums[a][b][h][2 * half], sums[a][b][h][2 * half + 1]);
        }
      }
    }
  }
}

struct alignas(8) Pair {
  float first, second;
};

// Adds the threads' sums of each column; thread t holds packet t % packets.
DEVICE void store_column_sums(const float* sums, float* scratch, int packets, int columns, float* place) {
  const int thread = threadIdx.x;
  UNROLLED for (int i = 0; i < WIDTH; ++i) scratch[thread * WIDTH + i] = sums[i];
  __syncthreads();
  if (thread < columns) {
    float sum = 0.0f;
    for (int j = thread; j < THREADS * WIDTH; j += packets * WIDTH) sum += scratch[j];
    place[thread] = sum;
  }
}

constexpr int STATISTICS_ROWS = 128, STATISTICS_TILE = STATISTICS_ROWS * INPUTS * 2;

KERNEL_AT_ONCE(2, pointwise_statistics_64)(const Element* x, float* partial, Shape shape) {
  constexpr int ROWS = STATISTICS_ROWS, ROWS_AT_ONCE = THREADS / X_PACKETS;
  // Two warps divide the product; four pairs of them divide the rows of a tile.
  constexpr int ROW_GROUPS = 4, GROUP = THREADS / ROW_GROUPS;
  static_assert((ROW_GROUPS - 1) * GROUP * 64 * 4 <= STAGES * STATISTICS_TILE, "shared memory");
  const int rows = shape.rows, thread = threadIdx.x, warp = thread / 32, row_group = warp / 2, left = warp % 2 * 32;
  const int tiles = tiles_of(rows, ROWS), step = gridDim.x;
  const auto tile_of = [&](int stage) { return Tile{shared_elements(stage * STATISTICS_TILE), X_PACKETS}; };
  const auto request = [&](int tile, int stage) {
    if (tile < tiles) {
      UNROLLED for (int u = 0; u < ROWS / ROWS_AT_ONCE; ++u) {
        const int row = thread / X_PACKETS + u * ROWS_AT_ONCE, packet = thread % X_PACKETS, of_x = tile * ROWS + row;
        copy_16(packet_at(tile_of(stage), row, packet), x + static_cast<u64>(of_x < rows ? of_x : 0) * INPUTS + packet * WIDTH, of_x < rows);
      }
    }
    end_copies();
  };
  Products products = {};
  float sums[WIDTH] = {};
  UNROLLED for (int s = 0; s < STAGES - 1; ++s) request(blockIdx.x + s * step, s);
  int stage = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += step) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    request(tile + (STAGES - 1) * step, stage == 0 ? STAGES - 1 : stage - 1);
    UNROLLED for (int u = 0; u < ROWS / ROWS_AT_ONCE; ++u) {
      float values[WIDTH];
      unpack(load(packet_at(tile_of(stage), thread / X_PACKETS + u * ROWS_AT_ONCE, thread % X_PACKETS)), values);
      UNROLLED for (int i = 0; i < WIDTH; ++i) sums[i] += values[i];
    }
    UNROLLED for (int k = 0; k < ROWS / ROW_GROUPS / 16; ++k) {
      add_products(products, tile_of(stage), left / WIDTH, tile_of(stage), 0, row_group * (ROWS / ROW_GROUPS) + 16 * k);
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }
  __syncthreads();
  // Row groups are added in order.
  float* const scratch = reinterpret_cast<float*>(shared_memory);
  const int in_group = thread % GROUP;
  float* const flat = &products[0][0][0][0];
  if (row_group > 0) {
    UNROLLED for (int i = 0; i < 64; ++i) scratch[((row_group - 1) * 64 + i) * GROUP + in_group] = flat[i];
  }
  __syncthreads();
  float* const place = partial + static_cast<u64>(blockIdx.x) * (INPUTS + 1) * INPUTS;
  if (row_group == 0) {
    UNROLLED for (int i = 0; i < 64; ++i) {
      UNROLLED for (int group = 1; group < ROW_GROUPS; ++group) flat[i] += scratch[((group - 1) * 64 + i) * GROUP + in_group];
    }
    for_each_pair(products, [&](int row, int column, float first, float second) {
      *reinterpret_cast<Pair*>(place + (left + row) * INPUTS + column) = {first, second};
    });
  }
  __syncthreads();
  store_column_sums(sums, scratch, X_PACKETS, INPUTS, place + INPUTS * INPUTS);
}

constexpr int GRADIENT_CHANNELS = 256, GRADIENT_ROWS = 32;
constexpr int GRADIENT_PASSES = GRADIENT_ROWS * GRADIENT_CHANNELS / WIDTH / THREADS;

// p W (channels x inputs), dz, dy and dy2 of a tile, two buffers of x and two of the mask.
struct Gradients {
  static constexpr int TENSOR_BYTES = GRADIENT_ROWS * GRADIENT_CHANNELS * 2, X_BYTES = GRADIENT_ROWS * INPUTS * 2;
  static constexpr int MASK_BYTES = GRADIENT_ROWS * GRADIENT_CHANNELS / 8;
  static constexpr int DZ = GRADIENT_CHANNELS * INPUTS * 2, DY = DZ + TENSOR_BYTES, DY2 = DY + TENSOR_BYTES;
  static constexpr int X = DY2 + TENSOR_BYTES, MASK = X + 2 * X_BYTES, BYTES = MASK + 2 * MASK_BYTES;
};
static_assert(Gradients::BYTES <= MOST_SHARED, "shared memory");

template <bool HAS_MASK, bool TWO>
DEVICE void gradients(
    const Element* dy, const Element* dy2, const u8* mask, const Element* x, const Element* weight, const float* statistics,
    Element* dz, Element* d1, float* partial, const Shape& shape) {
  constexpr int ROWS = GRADIENT_ROWS;
  static_assert(ROWS == 32, "warps divide d1 into 2 x 4 blocks");
  const int thread = threadIdx.x, lane = lane_number(), warp = thread / 32;
  const int rows = shape.rows, channels = shape.channels, packets = channels / WIDTH;
  const int tiles = tiles_of(rows, ROWS), step = gridDim.x;
  // A thread handles one packet of every eighth row.
  const int packet = lane;
  const bool has_own = packet < packets;
  const Tile scaled = {shared_elements(0), X_PACKETS}, of_dz = {shared_elements(Gradients::DZ), GRADIENT_CHANNELS / WIDTH};
  const auto x_tile = [&](int buffer) { return Tile{shared_elements(Gradients::X + buffer * Gradients::X_BYTES), X_PACKETS}; };
  // Shared memory of the packet in pass u, which only this thread writes and reads.
  const auto own = [&](int offset, int u) { return shared_elements(offset) + (u * THREADS + thread) * WIDTH; };
  const auto first_row = [&](int tile) { return (tiles - 1 - tile) * ROWS; };

  const auto request_own = [&](int tile, int u, int row) {
    const int at = first_row(tile) + row;
    const u64 place = static_cast<u64>(at < rows ? at : 0) * channels + packet * WIDTH;
    copy_16(own(Gradients::DY, u), dy + place, at < rows);
    if (TWO) copy_16(own(Gradients::DY2, u), dy2 + place, at < rows);
  };
  const auto request_common = [&](int tile, int buffer) {
    UNROLLED for (int i = thread; i < ROWS * X_PACKETS; i += THREADS) {
      const int row = i / X_PACKETS, at = first_row(tile) + row;
      copy_16(packet_at(x_tile(buffer), row, i % X_PACKETS), x + static_cast<u64>(at < rows ? at : 0) * INPUTS + i % X_PACKETS * WIDTH, at < rows);
    }
    if (HAS_MASK) {
      // Rows are contiguous in the mask: `packets` bytes each, a multiple of 8.
      const u64 begin = static_cast<u64>(first_row(tile)) * packets, end = static_cast<u64>(rows) * packets;
      for (int i = thread * 8; i < ROWS * packets; i += THREADS * 8) {
        copy_8(shared_memory + Gradients::MASK + buffer * Gradients::MASK_BYTES + i, mask + (begin + i < end ? begin + i : 0), begin + i < end);
      }
    }
  };

  int tile = blockIdx.x;
  if (tile < tiles) {
    request_common(tile, 0);
    UNROLLED for (int u = 0; u < GRADIENT_PASSES; ++u) {
      if (has_own) request_own(tile, u, warp + u * WARPS);
    }
  }
  end_copies();
  // Columns 8p + 2t + e (t = 0..3, e = 0, 1) of packets p = 2b, 2b + 1 are inputs 16b + 4t + 2 (p % 2) + e, so that a
  // thread's four results of a row are contiguous.
  for (int i = thread; i < channels * X_PACKETS; i += THREADS) {
    const int c = i / X_PACKETS, p = i % X_PACKETS;
    const float slope = statistics[2 * channels + c];
    float values[WIDTH];
    UNROLLED for (int j = 0; j < WIDTH; ++j) {
      values[j] = slope * to_float(weight[c * INPUTS + p / 2 * 16 + j / 2 * 4 + p % 2 * 2 + j % 2]);
    }
    store(packet_at(scaled, c, p), pack(values));
  }

  Products products = {};
  float sums[WIDTH] = {};
  for (int buffer = 0; tile < tiles; tile += step, buffer ^= 1) {
    wait_for_copies<0>();
    __syncthreads();
    const bool has_next = tile + step < tiles;
    if (has_next) request_common(tile + step, buffer ^ 1);
    const int first = first_row(tile);
    UNROLLED for (int u = 0; u < GRADIENT_PASSES; ++u) {
      const int row = warp + u * WARPS;
      if (has_own) {
        float g[WIDTH];
        unpack(load(own(Gradients::DY, u)), g);
        if (TWO) {
          float more[WIDTH];
          unpack(load(own(Gradients::DY2, u)), more);
          UNROLLED for (int i = 0; i < WIDTH; ++i) g[i] += more[i];
        }
        if (HAS_MASK) {
          const u32 bits = shared_memory[Gradients::MASK + buffer * Gradients::MASK_BYTES + row * packets + packet];
          UNROLLED for (int i = 0; i < WIDTH; ++i) g[i] = bits >> i & 1u ? g[i] : 0.0f;
        }
        const Packet rounded = pack(g);
        store(packet_at(of_dz, row, packet), rounded);
        if (dz != nullptr && first + row < rows) store(dz + static_cast<u64>(first + row) * channels + packet * WIDTH, rounded);
        unpack(rounded, g);
        UNROLLED for (int i = 0; i < WIDTH; ++i) sums[i] += g[i];
        // The thread has read its packets, which the next tile replaces.
        if (has_next) request_own(tile + step, u, row);
      }
    }
    end_copies();
    __syncthreads();
    if (warp * 32 < channels) {
      UNROLLED for (int k = 0; k < ROWS / 16; ++k) add_products(products, of_dz, warp * 4, x_tile(buffer), 0, 16 * k);
    }
    // d1 = dz (p W): each warp computes a block of 16 rows and 16 inputs.
    const int row_block = warp % 2, column_block = warp / 2;
    float block[2][4] = {};
    for (int c = 0; c < channels; c += 64) {
      UNROLLED for (int k = c; k < c + 64; k += 16) {
        multiply(block, load_fragment(of_dz, row_block * 16, k / WIDTH), load_fragment_transposed(scaled, k, 2 * column_block));
      }
    }
    UNROLLED for (int half = 0; half < 2; ++half) {
      const int row = first + row_block * 16 + half * 8 + lane / 4;
      if (row < rows) {
        u32 words[2];
        UNROLLED for (int h = 0; h < 2; ++h) {
          words[h] = to_element(block[h][2 * half]) | static_cast<u32>(to_element(block[h][2 * half + 1])) << 16;
        }
        *reinterpret_cast<u64*>(d1 + static_cast<u64>(row) * INPUTS + column_block * 16 + lane % 4 * 4) =
            words[0] | static_cast<u64>(words[1]) << 32;
      }
    }
  }
  float* const place = partial + static_cast<u64>(blockIdx.x) * (INPUTS + 1) * channels;
  if (warp * 32 < channels) {
    for_each_pair(products, [&](int row, int column, float first, float second) {
      *reinterpret_cast<Pair*>(place + (warp * 32 + row) * INPUTS + column) = {first, second};
    });
  }
  __syncthreads();
  store_column_sums(sums, reinterpret_cast<float*>(shared_memory + Gradients::DY), GRADIENT_CHANNELS / WIDTH, channels, place + INPUTS * channels);
}

#define POINTWISE_GRADIENTS(name, HAS_MASK, TWO)                                                                            \
  KERNEL_AT_ONCE(2, name)(                                                                                                  \
      const Element* dy, const Element* dy2, const u8* mask, const Element* x, const Element* weight,                       \
      const float* statistics, Element* dz, Element* d1, float* partial, Shape shape) {                                     \
    gradients<HAS_MASK, TWO>(dy, dy2, mask, x, weight, statistics, dz, d1, partial, shape);                                 \
  }
POINTWISE_GRADIENTS(pointwise_gradients, false, false)
POINTWISE_GRADIENTS(pointwise_gradients_two, false, true)
POINTWISE_GRADIENTS(pointwise_gradients_relu, true, false)
POINTWISE_GRADIENTS(pointwise_gradients_relu_two, true, true)

#endif

// ---- Small kernels between the large ones ----

struct alignas(16) Floats {
  float values[4];
};

// totals[i] = sum of partial[p * length + i] over p < parts, in fp64. `length` is a multiple of 4; a block adds 64 of
// them.
KERNEL(pointwise_sum)(const float* partial, float* totals, int parts, int length) {
  constexpr int PACKETS = 16, SHARES = THREADS / PACKETS;
  __shared__ double shares[SHARES][PACKETS * 4];
  const int thread = threadIdx.x, packet = thread % PACKETS, share = thread / PACKETS, base = blockIdx.x * PACKETS * 4;
  double sums[4] = {};
  if (base + packet * 4 < length) {
#pragma unroll 8
    for (int p = share; p < parts; p += SHARES) {
      const Floats values = *reinterpret_cast<const Floats*>(partial + static_cast<u64>(p) * length + base + packet * 4);
      UNROLLED for (int i = 0; i < 4; ++i) sums[i] += values.values[i];
    }
  }
  UNROLLED for (int i = 0; i < 4; ++i) shares[share][packet * 4 + i] = sums[i];
  __syncthreads();
  if (thread < PACKETS * 4 && base + thread < length) {
    double total = 0.0;
    UNROLLED for (int s = 0; s < SHARES; ++s) total += shares[s][thread];
    totals[base + thread] = static_cast<float>(total);
  }
}

// Adds values[g * COUNT + i] over i < COUNT for every group g of COUNT threads, COUNT a power of two; the sum is
// stored at i = 0.
template <int COUNT>
DEVICE void sum_groups(double* values) {
  const int thread = threadIdx.x;
  __syncthreads();
  UNROLLED for (int distance = COUNT / 2; distance > 0; distance /= 2) {
    if (thread % COUNT < distance) values[thread] += values[thread + distance];
    __syncthreads();
  }
}

constexpr int FINISHED_CHANNELS = 8;

// A block handles 8 channels; a thread handles one input of two of them.
KERNEL(pointwise_statistics_finish)(
    const float* gram, const float* sums, const Element* weight, const float* gamma, const float* beta, float* running_mean,
    float* running_variance, float* statistics, float* weight_gram, Shape shape, float momentum, float epsilon) {
  constexpr int OWN = FINISHED_CHANNELS * INPUTS / THREADS;
  __shared__ double means[INPUTS], shares[2 * THREADS];
  __shared__ float weights[FINISHED_CHANNELS][INPUTS], products[FINISHED_CHANNELS][INPUTS];
  const int thread = threadIdx.x, input = thread % INPUTS, own_first = thread / INPUTS * OWN, base = blockIdx.x * FINISHED_CHANNELS;
  const double n = shape.rows, of_row = 1.0 / n;
  if (thread < INPUTS) means[thread] = sums[thread] * of_row;
  UNROLLED for (int u = 0; u < OWN; ++u) {
    weights[own_first + u][input] = to_float(weight[(base + own_first + u) * INPUTS + input]);
  }
  __syncthreads();
  // W times the covariances of the inputs.
  float row[OWN] = {};
  const double own_mean = means[input];
#pragma unroll 8
  for (int l = 0; l < INPUTS; ++l) {
    const float covariance = static_cast<float>(gram[l * INPUTS + input] * of_row - means[l] * own_mean);
    UNROLLED for (int u = 0; u < OWN; ++u) row[u] = fmaf(weights[own_first + u][l], covariance, row[u]);
  }
  UNROLLED for (int u = 0; u < OWN; ++u) products[own_first + u][input] = row[u] * weights[own_first + u][input];
  // 32 threads per channel compute its mean, then its variance.
  const int c = thread / 32;
  double mean = 0.0, variance = 0.0;
  __syncthreads();
  for (int i = thread % 32; i < INPUTS; i += 32) {
    mean += weights[c][i] * means[i];
    variance += products[c][i];
  }
  shares[thread] = mean;
  shares[THREADS + thread] = variance;
  sum_groups<32>(shares);
  sum_groups<32>(shares + THREADS);
  UNROLLED for (int u = 0; u < OWN; ++u) {
    weight_gram[(base + own_first + u) * INPUTS + input] = static_cast<float>(n * (row[u] + shares[(own_first + u) * 32] * own_mean));
  }
  if (thread % 32 == 0) {
    const int channel = base + c;
    variance = shares[THREADS + thread] < 0.0 ? 0.0 : shares[THREADS + thread];
    const float rounded_mean = static_cast<float>(shares[thread]);
    const float inverse_sigma = static_cast<float>(1.0 / sqrt(variance + static_cast<double>(epsilon)));
    statistics[channel] = rounded_mean;
    statistics[shape.channels + channel] = inverse_sigma;
    statistics[2 * shape.channels + channel] = inverse_sigma * gamma[channel];
    statistics[3 * shape.channels + channel] = beta[channel] - rounded_mean * (inverse_sigma * gamma[channel]);
    running_mean[channel] += momentum * (rounded_mean - running_mean[channel]);
    running_variance[channel] += momentum * (static_cast<float>(variance * n / (n - 1.0)) - running_variance[channel]);
  }
}

// A block handles two channels.
KERNEL(pointwise_gradient_finish)(
    const float* partial, int parts, const Element* weight, const float* statistics, const float* weight_gram, const float* sums,
    Element* dweight, float* dgamma, float* dbeta, float* coefficients, Shape shape) {
  constexpr int VALUES = 2 * INPUTS, PACKETS = VALUES / 4, SHARES = THREADS / PACKETS;
  __shared__ double shares[SHARES][VALUES], of_sums[THREADS], products[THREADS];
  const int thread = threadIdx.x, channels = shape.channels, base = blockIdx.x * 2;
  const u64 length = static_cast<u64>(INPUTS + 1) * channels;
  const int packet = thread % PACKETS, share = thread / PACKETS;
  double total[4] = {};
#pragma unroll 8
  for (int p = share; p < parts; p += SHARES) {
    const Floats values = *reinterpret_cast<const Floats*>(partial + p * length + base * INPUTS + packet * 4);
    UNROLLED for (int i = 0; i < 4; ++i) total[i] += values.values[i];
  }
  UNROLLED for (int i = 0; i < 4; ++i) shares[share][packet * 4 + i] = total[i];
  // Half of the threads for each channel.
  double sum = 0.0;
  for (int p = thread % 128; p < parts; p += 128) sum += partial[p * length + static_cast<u64>(INPUTS) * channels + base + thread / 128];
  of_sums[thread] = sum;
  sum_groups<128>(of_sums);
  const int channel = base + thread / INPUTS % 2, input = thread % INPUTS;
  const double w = to_float(weight[channel * INPUTS + input]);
  double product = 0.0;
  if (thread < VALUES) {
    UNROLLED for (int s = 0; s < SHARES; ++s) product += shares[s][thread];
  }
  products[thread] = product * w;
  sum_groups<INPUTS>(products);
  if (thread < VALUES) {
    const double n = shape.rows, mean = statistics[channel], inverse_sigma = statistics[channels + channel];
    const double slope = statistics[2 * channels + channel], s = of_sums[thread / INPUTS * 128];
    const double of_gamma = inverse_sigma * (products[thread / INPUTS * INPUTS] - mean * s);
    const double q = -slope * of_gamma * inverse_sigma / n, r = -slope * s / n - q * mean;
    const double gradient = slope * product + q * weight_gram[channel * INPUTS + input] + r * sums[input];
    dweight[channel * INPUTS + input] = to_element(static_cast<float>(gradient));
    if (input == 0) {
      dgamma[channel] = static_cast<float>(of_gamma);
      dbeta[channel] = static_cast<float>(s);
      coefficients[channel] = static_cast<float>(slope);
      coefficients[channels + channel] = static_cast<float>(q);
      coefficients[2 * channels + channel] = static_cast<float>(r);
    }
  }
}

// matrix = W^T diag(q) W, row = r^T W. A block handles one row of the matrix.
KERNEL(pointwise_gradient_matrix)(const Element* weight, const float* coefficients, Element* matrix, float* row, Shape shape) {
  constexpr int SHARES = THREADS / INPUTS;
  __shared__ float shares[SHARES][INPUTS];
  __shared__ double products[THREADS];
  const int thread = threadIdx.x, input = thread % INPUTS, share = thread / INPUTS, channels = shape.channels, own = blockIdx.x;
  const float* const q = coefficients + channels;
  float sum = 0.0f;
#pragma unroll 8
  for (int c = share; c < channels; c += SHARES) {
    sum = fmaf(q[c] * to_float(weight[c * INPUTS + own]), to_float(weight[c * INPUTS + input]), sum);
  }
  shares[share][input] = sum;
  double product = 0.0;
  for (int c = thread; c < channels; c += THREADS) {
    product += static_cast<double>(coefficients[2 * channels + c]) * to_float(weight[c * INPUTS + own]);
  }
  products[thread] = product;
  sum_groups<THREADS>(products);
  if (share == 0) {
    UNROLLED for (int s = 1; s < SHARES; ++s) sum += shares[s][input];
    matrix[own * INPUTS + input] = to_element(sum);
  }
  if (thread == 0) row[own] = static_cast<float>(products[0]);
}

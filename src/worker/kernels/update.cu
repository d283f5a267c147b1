// Update of flat fp32 weights by stochastic gradient descent with Nesterov momentum, and of the copy of the weights
// that convolutions and products use. Each value is read and written once. The formula is that of
// exchange/optimizer.rs.
//
//   g = gradient / scale + decay * w; m = momentum * m + g; w -= rate * (g + momentum * m)
//
// Launched with 256 threads per block in x and any number of blocks. `count` is the number of values; pointers are
// aligned to 16 bytes.

constexpr int FLOATS = 4;

DEVICE u64 global_thread() { return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; }
DEVICE u64 global_threads() { return static_cast<u64>(gridDim.x) * blockDim.x; }

DEVICE void load_floats(const float* place, u64 at, u64 count, float* values) {
  if (at + FLOATS <= count) {
    const Packet packet = *reinterpret_cast<const Packet*>(place + at);
    UNROLLED for (int i = 0; i < FLOATS; ++i) values[i] = bits_to_float(packet.words[i]);
  } else {
    UNROLLED for (int i = 0; i < FLOATS; ++i) values[i] = at + i < count ? place[at + i] : 0.0f;
  }
}

DEVICE void store_floats(float* place, u64 at, u64 count, const float* values) {
  if (at + FLOATS <= count) {
    Packet packet;
    UNROLLED for (int i = 0; i < FLOATS; ++i) packet.words[i] = float_to_bits(values[i]);
    *reinterpret_cast<Packet*>(place + at) = packet;
  } else {
    UNROLLED for (int i = 0; i < FLOATS; ++i) {
      if (at + i < count) place[at + i] = values[i];
    }
  }
}

// Four weights converted to Element, stored at once.
struct alignas(FLOATS * sizeof(Element)) Rounded {
  Element values[FLOATS];
};

DEVICE void store_rounded(Element* place, u64 at, u64 count, const float* values) {
  if (at + FLOATS <= count) {
    Rounded rounded;
    UNROLLED for (int i = 0; i < FLOATS; ++i) rounded.values[i] = to_element(values[i]);
    *reinterpret_cast<Rounded*>(place + at) = rounded;
  } else {
    UNROLLED for (int i = 0; i < FLOATS; ++i) {
      if (at + i < count) place[at + i] = to_element(values[i]);
    }
  }
}

// Sets `found_inf`, which is 0, to 1 if a gradient is not finite after division by `scale`.
KERNEL(update_check)(const float* gradients, const float* scale, float* found_inf, u64 count) {
  const float factor = 1.0f / *scale;
  bool is_finite = true;
  for (u64 at = global_thread() * FLOATS; at < count; at += global_threads() * FLOATS) {
    float g[FLOATS];
    load_floats(gradients, at, count, g);
    UNROLLED for (int i = 0; i < FLOATS; ++i) {
      // Infinity and NaN have all exponent bits set.
      is_finite = is_finite && (float_to_bits(g[i] * factor) & 0x7f800000u) != 0x7f800000u;
    }
  }
  if (!is_finite) *found_inf = 1.0f;
}

// `scale` and `found_inf` are null without loss scaling; `rounded` is null if no converted copy is needed. Nothing
// changes if `found_inf` is not 0.
KERNEL(update)(
    float* weights, const float* gradients, float* momenta, Element* rounded, const float* scale, const float* found_inf,
    u64 count, float rate, float momentum, float decay) {
  if (found_inf != nullptr && *found_inf != 0.0f) return;
  const float factor = scale == nullptr ? 1.0f : 1.0f / *scale;
  for (u64 at = global_thread() * FLOATS; at < count; at += global_threads() * FLOATS) {
    float g[FLOATS], w[FLOATS], m[FLOATS];
    load_floats(gradients, at, count, g);
    load_floats(weights, at, count, w);
    load_floats(momenta, at, count, m);
    UNROLLED for (int i = 0; i < FLOATS; ++i) {
      const float gradient = fmaf(decay, w[i], g[i] * factor);
      m[i] = fmaf(momentum, m[i], gradient);
      w[i] -= rate * fmaf(momentum, m[i], gradient);
    }
    store_floats(weights, at, count, w);
    store_floats(momenta, at, count, m);
    if (rounded != nullptr) store_rounded(rounded, at, count, w);
  }
}

// Kernels that test the virtual GPUs: some are correct, and some have the error in their name.

#ifdef ELEMENT_HALF
KERNEL(halves_to_floats)(const u16* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = half_to_float(in[i]);
}

KERNEL(floats_to_halves)(const float* in, u16* out, u16* out_bfloat16, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = float_to_half(in[i]);
    out_bfloat16[i] = float_to_bfloat16(in[i]);
  }
}
#endif

// KERNEL(in_a_comment)(int n) {}

struct Step {
  int first, count;
};

KERNEL(copy)(const float* in, float* out, Step step) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < step.count) out[step.first + i] = in[step.first + i];
}

DEVICE float sum_of_block(float value, int threads) {
  __shared__ float values[256];
  values[threadIdx.x] = value;
  __syncthreads();
  for (int half = threads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) values[threadIdx.x] += values[threadIdx.x + half];
    __syncthreads();
  }
  return values[0];
}

// The last block adds the blocks' sums in order.
KERNEL(sum)(const float* in, float* partial, u32* ticket, double* out, int n) {
  __shared__ u32 is_last;
  float value = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) value += in[i];
  const float total = sum_of_block(value, blockDim.x);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = total;
    __threadfence();
    is_last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  __threadfence();
  *ticket = 0;
  double all = 0.0;
  for (u32 block = 0; block < gridDim.x; ++block) all += load_written(partial + block);
  *out = all;
}

KERNEL(reverse)(const float* in, float* out) {
  __shared__ float values[256];
  values[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

// Through an asynchronous copy.
KERNEL(reverse_by_copy)(const float* in, float* out) {
  __shared__ __attribute__((aligned(16))) float values[256];
  if (threadIdx.x < blockDim.x / 4) copy_16(values + 4 * threadIdx.x, in + 4 * threadIdx.x, true);
  end_copies();
  wait_for_copies<0>();
  __syncthreads();
  out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

// Bytes that have not arrived are NaN.
KERNEL(reverse_without_wait)(const float* in, float* out) {
  __shared__ __attribute__((aligned(16))) float values[256];
  if (threadIdx.x < blockDim.x / 4) copy_16(values + 4 * threadIdx.x, in + 4 * threadIdx.x, true);
  end_copies();
  wait_for_copies<1>();
  __syncthreads();
  out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

KERNEL(reverse_without_barrier)(const float* in, float* out) {
  __shared__ float values[256];
  values[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

KERNEL(rotate_without_barrier)(float* values) {
  const float next = values[(threadIdx.x + 1) % blockDim.x];
  values[threadIdx.x] = next;
}

// Threads that write to the same location are not an error, because they may write the same value. Another order
// shows that these do not.
KERNEL(write_in_turns)(float* values) { values[threadIdx.x / 2] = static_cast<float>(threadIdx.x); }

// Every block but the last to arrive stores a part; the last one adds the parts of all threads of all blocks.
DEVICE void add_parts(float* parts, u32* ticket, float* out) {
  __shared__ u32 is_last;
  if (threadIdx.x == 0) is_last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  __threadfence();
  float total = 0.0f;
  for (u32 i = 0; i < gridDim.x * blockDim.x; ++i) total += load_written(parts + i);
  *out = total;
  *ticket = 0;
}

KERNEL(add_parts_of_blocks)(float* parts, u32* ticket, float* out) {
  parts[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
  __threadfence();
  __syncthreads();
  add_parts(parts, ticket, out);
}

KERNEL(add_parts_without_fence)(float* parts, u32* ticket, float* out) {
  parts[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
  __syncthreads();
  add_parts(parts, ticket, out);
}

KERNEL(add_parts_without_barrier)(float* parts, u32* ticket, float* out) {
  parts[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
  __threadfence();
  add_parts(parts, ticket, out);
}

KERNEL(add_parts_without_ticket)(float* parts, u32*, float* out) {
  parts[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *out = load_written(parts);
}

KERNEL(barrier_of_half_the_threads)(float* values) {
  if (threadIdx.x % 2 == 0) __syncthreads();
  values[threadIdx.x] = 1.0f;
}

KERNEL(barriers_at_two_places)(float* values) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  values[threadIdx.x] = 1.0f;
}

KERNEL(write_past_the_end)(float* values, int n) { values[n + threadIdx.x] = 1.0f; }

// Values of the previous block must not be visible.
KERNEL(read_what_no_thread_wrote)(float* out) {
  __shared__ float value;
  out[blockIdx.x] = value;
  __syncthreads();
  value = 1.0f;
}

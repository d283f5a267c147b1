// Types and conversions shared by the kernels in this folder. The worker compiles this text followed by a .cu file
// with NVRTC. Tests compile the same text for the CPU, with a header that replaces the first branch below.
//
// One of ELEMENT_HALF, ELEMENT_BFLOAT16 and ELEMENT_FLOAT is defined: the type of images and of their gradients.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __CUDACC_RTC__
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(256) name
// A kernel whose registers allow `blocks` blocks per multiprocessor.
#define KERNEL_AT_ONCE(blocks, name) extern "C" __global__ void __launch_bounds__(256, blocks) name
// Shared memory whose size, at most `bytes`, is a launch parameter.
#define SHARED_MEMORY(name, bytes) extern __shared__ __align__(128) u8 name[]
#define DEVICE __device__ __forceinline__
#define UNROLLED _Pragma("unroll")

// cuda_fp16.h is not part of the NVRTC wheel.
DEVICE float half_to_float(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
DEVICE u16 float_to_half(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
DEVICE float bfloat16_to_float(u16 bits) { return __uint_as_float(static_cast<u32>(bits) << 16); }
#ifdef ELEMENT_BFLOAT16
DEVICE u16 float_to_bfloat16(float value) {
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif
DEVICE float bits_to_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 float_to_bits(float value) { return __float_as_uint(value); }
// Reads values written by other blocks of the same launch, bypassing the L1 cache.
DEVICE float load_written(const float* place) {
  float value;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(place) : "memory");
  return value;
}

DEVICE u32 shared_address(const void* place) { return static_cast<u32>(__cvta_generic_to_shared(place)); }

// Copies 16 or 8 bytes to shared memory, or writes zeros unless `is_there`. Copies between two calls of `end_copies`
// form a group; `wait_for_copies<N>` waits until all but the last N groups of the thread have arrived.
DEVICE void copy_16(void* shared, const void* place, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(place), "r"(is_there ? 16 : 0)
               : "memory");
}
DEVICE void copy_8(void* shared, const void* place, bool is_there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(shared)), "l"(place), "r"(is_there ? 8 : 0)
               : "memory");
}
DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS>
DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}
#else
#define UNROLLED
#endif

#if defined(ELEMENT_FLOAT)
typedef float Element;
constexpr int WIDTH = 4;
#else
typedef u16 Element;
constexpr int WIDTH = 8;
#endif

// 16 bytes, which a thread loads and stores at once: WIDTH elements.
struct alignas(16) Packet {
  u32 words[4];
};

DEVICE Packet load(const Element* place) { return *reinterpret_cast<const Packet*>(place); }
DEVICE void store(Element* place, const Packet& packet) { *reinterpret_cast<Packet*>(place) = packet; }

DEVICE float to_float(Element element) {
#if defined(ELEMENT_HALF)
  return half_to_float(element);
#elif defined(ELEMENT_BFLOAT16)
  return bfloat16_to_float(element);
#else
  return element;
#endif
}

DEVICE Element to_element(float value) {
#if defined(ELEMENT_HALF)
  return float_to_half(value);
#elif defined(ELEMENT_BFLOAT16)
  return float_to_bfloat16(value);
#else
  return value;
#endif
}

DEVICE void unpack(const Packet& packet, float* values) {
#if defined(ELEMENT_FLOAT)
  UNROLLED for (int i = 0; i < WIDTH; ++i) values[i] = bits_to_float(packet.words[i]);
#else
  UNROLLED for (int i = 0; i < 4; ++i) {
    values[2 * i] = to_float(static_cast<u16>(packet.words[i]));
    values[2 * i + 1] = to_float(static_cast<u16>(packet.words[i] >> 16));
  }
#endif
}

DEVICE Packet pack(const float* values) {
  Packet packet;
#if defined(ELEMENT_FLOAT)
  UNROLLED for (int i = 0; i < WIDTH; ++i) packet.words[i] = float_to_bits(values[i]);
#else
  UNROLLED for (int i = 0; i < 4; ++i) {
    packet.words[i] = to_element(values[2 * i]) | static_cast<u32>(to_element(values[2 * i + 1])) << 16;
  }
#endif
  return packet;
}

// NaN passes ReLU, as in libtorch.
DEVICE bool is_on(float value) { return !(value <= 0.0f); }

// Operations after the normalization.
enum After { NOTHING, RELU, SUM_AND_RELU };

#ifndef ELEMENT_FLOAT
// Products of 16 x 16 blocks on tensor cores (compute capability 8.0). All threads of a warp participate; blockDim.y
// is 1.

// Matrix in shared memory with `packets` packets per row, a multiple of 8. The order of the packets differs between
// eight neighboring rows, so that a warp reads a column of packets without bank conflicts.
struct Tile {
  Element* data;
  int packets;
};

DEVICE Element* packet_at(const Tile& tile, int row, int packet) {
  return tile.data + (row * tile.packets + (packet ^ (row & 7))) * WIDTH;
}

DEVICE int lane_number() { return threadIdx.x & 31; }

#if defined(__CUDACC_RTC__) || defined(WARP_MATRICES)
#ifdef __CUDACC_RTC__
// Lane l passes the address of row l % 8 of the 8 x 8 matrix l / 8. It receives words[i]: row l / 4 of matrix i,
// column 2 * (l % 4) in the low half and the next column in the high half.
DEVICE void load_matrices(u32* words, const Element* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same for the transposed matrices: words[i] are rows 2 * (l % 4) and the next one of column l / 4.
DEVICE void load_matrices_transposed(u32* words, const Element* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
}
// sums (16 x 8) += a (16 x 16) * b (16 x 8). With g = lane / 4 and t = lane % 4:
//   sums[0], [1]   row g, columns 2t, 2t + 1;  sums[2], [3]: row g + 8
//   a[0], a[1]     rows g, g + 8, columns 2t, 2t + 1;  a[2], a[3]: columns 2t + 8, 2t + 9
//   b0, b1         column g, rows 2t, 2t + 1 and 2t + 8, 2t + 9
DEVICE void multiply_matrices(float* sums, const u32* a, u32 b0, u32 b1) {
#ifdef ELEMENT_HALF
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// A lane's part of a 16 x 16 block. Index i is the block's row as the left factor and its column as the right factor;
// the product sums over index j. With g and t as above: words[0]: i = g, j = 2t, 2t + 1;  words[1]: i = g + 8;
// words[2]: i = g, j = 2t + 8, 2t + 9;  words[3]: i = g + 8, same j.
struct Fragment {
  u32 words[4];
};

// Loads the block whose i are rows of the tile from `row` and whose j are columns from packet `packet`.
DEVICE Fragment load_fragment(const Tile& tile, int row, int packet) {
  const int lane = lane_number();
  Fragment fragment;
  load_matrices(fragment.words, packet_at(tile, row + (lane & 15), packet + (lane >> 4)));
  return fragment;
}

// Loads the block whose j are rows of the tile from `row` and whose i are columns from packet `packet`.
DEVICE Fragment load_fragment_transposed(const Tile& tile, int row, int packet) {
  const int lane = lane_number();
  Fragment fragment;
  load_matrices_transposed(fragment.words, packet_at(tile, row + (lane >> 4) * 8 + (lane & 7), packet + (lane >> 3 & 1)));
  return fragment;
}

// Adds the product of two blocks. sums[h]: rows g (0, 1) and g + 8 (2, 3), columns 8h + 2t and 8h + 2t + 1.
DEVICE void multiply(float (*sums)[4], const Fragment& left, const Fragment& right) {
  multiply_matrices(sums[0], left.words, right.words[0], right.words[2]);
  multiply_matrices(sums[1], left.words, right.words[1], right.words[3]);
}
#else
// CPU version: a fragment is a view of the tile, which must not change while the fragment is used, and a lane
// computes its elements of the product from shared memory.
struct Fragment {
  Tile tile;
  int row, packet;
  bool is_transposed;

  float at(int i, int j) const {
    const int r = row + (is_transposed ? j : i), c = is_transposed ? i : j;
    return to_float(packet_at(tile, r, packet + c / WIDTH)[c % WIDTH]);
  }
};

DEVICE Fragment load_fragment(const Tile& tile, int row, int packet) { return {tile, row, packet, false}; }
DEVICE Fragment load_fragment_transposed(const Tile& tile, int row, int packet) { return {tile, row, packet, true}; }

DEVICE void multiply(float (*sums)[4], const Fragment& left, const Fragment& right) {
  const int g = lane_number() / 4, t = lane_number() % 4;
  for (int h = 0; h < 2; ++h) {
    for (int e = 0; e < 4; ++e) {
      float sum = 0.0f;
      for (int j = 0; j < 16; ++j) sum += left.at(g + 8 * (e / 2), j) * right.at(8 * h + 2 * t + e % 2, j);
      sums[h][e] += sum;
    }
  }
}
#endif
#endif

// Types and conversions shared by the kernels of this folder. The worker compiles this text and the .cu files after it with
// NVRTC; the tests compile the same text for the CPU, where a header of their own replaces the first branch below.
//
// One of ELEMENT_HALF, ELEMENT_BFLOAT16 and ELEMENT_FLOAT is defined: the type of images and of their gradients.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __CUDACC_RTC__
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(256, 2) name
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
// Reads what other blocks of the same launch have written: past the L1 cache.
DEVICE float load_written(const float* place) {
  float value;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(place) : "memory");
  return value;
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

// 16 bytes: what a thread loads and stores at once. WIDTH elements.
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

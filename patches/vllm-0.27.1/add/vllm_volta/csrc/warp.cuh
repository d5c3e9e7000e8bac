// What the kernels need of the machine: loads, shuffles, fp16 pairs in 32-bit words, tensor core instructions.

#pragma once

#include <cuda_fp16.h>

namespace vllm_volta {

// 16 bytes of the weight: each is read once, so it need not stay in the L1 cache.
__device__ __forceinline__ uint4 load_streamed(const uint4* address) {
  uint4 value;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
      : "l"(address));
  return value;
}

__device__ __forceinline__ unsigned int load_streamed(const unsigned int* address) {
  unsigned int value;
  asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}

// What another thread block wrote: past the L1 cache.
__device__ __forceinline__ float4 load_shared_result(const float4* address) { return __ldcg(address); }
__device__ __forceinline__ float load_shared_result(const float* address) { return __ldcg(address); }

// The shared memory that a launch asks for.
template <class Value>
__device__ __forceinline__ Value* dynamic_shared() {
  extern __shared__ uint4 dynamic[];
  return reinterpret_cast<Value*>(dynamic);
}

// All lanes of a warp come to each of these together. What they wrote to shared memory before is there after meet_warp.
__device__ __forceinline__ void meet_warp() { __syncwarp(); }
__device__ __forceinline__ bool any_lane(bool condition) { return __any_sync(0xffffffffu, condition); }
__device__ __forceinline__ unsigned int lanes_with(bool condition) { return __ballot_sync(0xffffffffu, condition); }
__device__ __forceinline__ float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
__device__ __forceinline__ int shuffle_up(int value, int lanes) { return __shfl_up_sync(0xffffffffu, value, lanes); }
__device__ __forceinline__ int shuffle_from(int value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }

// 2^exponent, to about 2 units in the last place; numbers below 2^-126 become zero.
__device__ __forceinline__ float power_of_two(float exponent) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
  return power;
}

// Two numbers rounded to fp16, the first in the lower half.
__device__ __forceinline__ unsigned int halves_from(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const unsigned int*>(&pair);
}

// Two fp16 products, rounded to nearest even, subnormal numbers included.
__device__ __forceinline__ unsigned int multiply_pairs(unsigned int left, unsigned int right) {
  unsigned int product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(left), "r"(right));
  return product;
}

// Two fp16 numbers, or eight, times a factor in fp32, rounded to nearest even.
__device__ __forceinline__ unsigned int scaled_pair(unsigned int pair, float factor) {
  const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&pair));
  const __half2 scaled = __floats2half2_rn(values.x * factor, values.y * factor);
  return *reinterpret_cast<const unsigned int*>(&scaled);
}

__device__ __forceinline__ uint4 scaled_pairs(uint4 pairs, float factor) {
  return make_uint4(scaled_pair(pairs.x, factor), scaled_pair(pairs.y, factor), scaled_pair(pairs.z, factor),
                    scaled_pair(pairs.w, factor));
}

// The lower or the upper half of a word, twice.
__device__ __forceinline__ unsigned int lower_twice(unsigned int word) { return __byte_perm(word, 0, 0x1010); }
__device__ __forceinline__ unsigned int upper_twice(unsigned int word) { return __byte_perm(word, 0, 0x3232); }

// Bytes 0 and 1 (or 2 and 3) of a word as the upper bytes of two halves.
__device__ __forceinline__ unsigned int lower_bytes_as_halves(unsigned int word) {
  return __byte_perm(word, 0, 0x1404);
}
__device__ __forceinline__ unsigned int upper_bytes_as_halves(unsigned int word) {
  return __byte_perm(word, 0, 0x3424);
}

__device__ __forceinline__ float sum_of_halves(unsigned int pair) {
  const float2 numbers = __half22float2(*reinterpret_cast<const __half2*>(&pair));
  return numbers.x + numbers.y;
}

// The lower halves of two words, or their upper halves, in one.
__device__ __forceinline__ unsigned int lower_halves(unsigned int first, unsigned int second) {
  return __byte_perm(first, second, 0x5410);
}
__device__ __forceinline__ unsigned int upper_halves(unsigned int first, unsigned int second) {
  return __byte_perm(first, second, 0x7632);
}

// sums += a b for one quad pair: a 8 x 4 by rows, b 4 x 8 by columns (PTX ISA, mma.m8n8k4).
__device__ __forceinline__ void multiply_m8n8k4(float (&sums)[8], const unsigned int* a, const unsigned int* b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, "
      "{%0, %1, %2, %3, %4, %5, %6, %7};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]),
        "+f"(sums[7])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]));
}

// The same with a 8 x 4 by columns.
__device__ __forceinline__ void multiply_m8n8k4_columns(float (&sums)[8], const unsigned int* a,
                                                        const unsigned int* b) {
  asm("mma.sync.aligned.m8n8k4.col.col.f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, "
      "{%0, %1, %2, %3, %4, %5, %6, %7};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]),
        "+f"(sums[7])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]));
}

// sums += a b: a 32 x 16 by rows, b 16 x 8 by columns. From 8.0 on only the first two registers of b count.
__device__ __forceinline__ void multiply_m32n8k16(float (&sums)[8], const unsigned int* a, const unsigned int* b) {
  asm("wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %16, %17, %16, %17, %16, %17}, "
      "{%0, %1, %2, %3, %4, %5, %6, %7};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]),
        "+f"(sums[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]), "r"(b[0]), "r"(b[1]));
}

}  // namespace vllm_volta

// Stands in for CUDA's header of that name and for what the compiler of CUDA knows by itself, so that kernels are
// compiled for the host. How their threads run there: thread_blocks.h.

#pragma once

#include <cmath>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
// A variable of a function that all threads of a block share, since they run on one thread of the host. Thread-local
// ones lie together, and nothing else of this library does there: thread_blocks.cpp fills all of it with NaN.
#define __shared__ thread_local

struct alignas(8) uint2 {
  unsigned int x, y;
};

struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};

struct float2 {
  float x, y;
};

struct alignas(16) float4 {
  float x, y, z, w;
};

struct dim3 {
  unsigned int x, y, z;
};

inline dim3 gridDim, blockDim, blockIdx, threadIdx;

// The processor rounds to nearest even, as the GPU's _rn conversions do.
using __half = _Float16;

struct __half2 {
  __half x, y;
};

inline __half __float2half_rn(float value) { return static_cast<__half>(value); }

inline float __half2float(__half value) { return static_cast<float>(value); }

inline __half2 __floats2half2_rn(float low, float high) {
  return {static_cast<__half>(low), static_cast<__half>(high)};
}

inline float2 __half22float2(__half2 pair) { return {__half2float(pair.x), __half2float(pair.y)}; }

inline float2 make_float2(float x, float y) { return {x, y}; }

inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }

inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) { return {x, y, z, w}; }

inline int min(int left, int right) { return left < right ? left : right; }

inline int max(int left, int right) { return left < right ? right : left; }

inline unsigned int min(unsigned int left, unsigned int right) { return left < right ? left : right; }

inline unsigned int max(unsigned int left, unsigned int right) { return left < right ? right : left; }

// The number of the lowest bit that is set, from 1 on; 0: there is none.
inline int __ffs(int word) { return __builtin_ffs(word); }

inline float __int_as_float(int bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Only one thread of the host runs, so everybody sees what was written.
inline void __threadfence() {}

// As CUDA's; defined in thread_blocks.cpp.
void __syncwarp();
void __syncthreads();
unsigned int atomicAdd(unsigned int* address, unsigned int value);

// Stands in for CUDA's header of that name, so that a kernel runs on the host, one thread after the other.

#pragma once

#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline

struct uint2 {
  unsigned int x, y;
};

struct uint4 {
  unsigned int x, y, z, w;
};

struct dim3 {
  unsigned int x;
};

inline dim3 gridDim, blockDim, blockIdx, threadIdx;

// The processor rounds to nearest even, as the GPU's _rn conversions do.
using __half = _Float16;

struct __half2 {
  __half x, y;
};

inline __half __float2half_rn(float value) { return static_cast<__half>(value); }

inline __half2 __floats2half2_rn(float low, float high) {
  return {static_cast<__half>(low), static_cast<__half>(high)};
}

inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) { return {x, y, z, w}; }

// Runs a kernel's threads in order.
template <typename Kernel, typename... Arguments>
void launch(unsigned int blocks, unsigned int threads, Kernel kernel, Arguments... arguments) {
  gridDim.x = blocks;
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {
      kernel(arguments...);
    }
  }
}

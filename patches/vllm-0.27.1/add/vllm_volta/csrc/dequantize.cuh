// Kernels that turn quantised weights into fp16. They need no header of torch, so that NVRTC compiles them alone.

#pragma once

#include <cuda_fp16.h>

#include "decode.h"

namespace vllm_volta {

// Two fp16 values in one word, rounded to nearest even.
__device__ __forceinline__ unsigned int half_pair(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned int*>(&pair);
}

// Eight NVFP4 values as fp16.
__device__ __forceinline__ uint4 half_octet_of_nvfp4(unsigned int word, float scale) {
  float values[8];
  decode_nvfp4(word, scale, values);
  return make_uint4(half_pair(values[0], values[1]), half_pair(values[2], values[3]), half_pair(values[4], values[5]),
                    half_pair(values[6], values[7]));
}

// Eight FP8 values as fp16.
__device__ __forceinline__ uint4 half_octet_of_fp8(unsigned int first, unsigned int second, float scale) {
  float values[8];
  decode_fp8(first, scale, values);
  decode_fp8(second, scale, values + 4);
  return make_uint4(half_pair(values[0], values[1]), half_pair(values[2], values[3]), half_pair(values[4], values[5]),
                    half_pair(values[6], values[7]));
}

// packed: 8 bytes per block of 16 values. block_scale: one E4M3 code per block. global_scale: one factor for all.
// One thread does one block at a time: 8 bytes in, 32 bytes out.
extern "C" __global__ void dequantize_nvfp4_kernel(const uint2* __restrict__ packed,
                                                   const unsigned char* __restrict__ block_scale,
                                                   const float* __restrict__ global_scale, uint4* __restrict__ out,
                                                   long long blocks) {
  const float factor = *global_scale;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < blocks; i += stride) {
    const uint2 words = packed[i];
    const float scale = e4m3_value(block_scale[i]) * factor;
    out[2 * i] = half_octet_of_nvfp4(words.x, scale);
    out[2 * i + 1] = half_octet_of_nvfp4(words.y, scale);
  }
}

// weight: E4M3 codes, row by row. scale: one factor per tile of block_rows x block_columns, row by row.
// One thread does 16 values of one row at a time; `columns` and `block_columns` are multiples of 16.
extern "C" __global__ void dequantize_fp8_kernel(const uint4* __restrict__ weight, const float* __restrict__ scale,
                                                 uint4* __restrict__ out, int rows, int columns, int block_rows,
                                                 int block_columns) {
  const int pieces = columns / 16;
  const int scale_columns = (columns + block_columns - 1) / block_columns;
  const long long total = static_cast<long long>(rows) * pieces;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += stride) {
    const int row = static_cast<int>(i / pieces);
    const int column = static_cast<int>(i % pieces) * 16;
    const float factor = scale[static_cast<long long>(row / block_rows) * scale_columns + column / block_columns];
    const uint4 words = weight[i];
    out[2 * i] = half_octet_of_fp8(words.x, words.y, factor);
    out[2 * i + 1] = half_octet_of_fp8(words.z, words.w, factor);
  }
}

// The same for any number of columns, one value at a time.
extern "C" __global__ void dequantize_fp8_unaligned_kernel(const unsigned char* __restrict__ weight,
                                                           const float* __restrict__ scale, __half* __restrict__ out,
                                                           int rows, int columns, int block_rows, int block_columns) {
  const int scale_columns = (columns + block_columns - 1) / block_columns;
  const long long total = static_cast<long long>(rows) * columns;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += stride) {
    const int row = static_cast<int>(i / columns);
    const int column = static_cast<int>(i % columns);
    const float factor = scale[static_cast<long long>(row / block_rows) * scale_columns + column / block_columns];
    out[i] = __float2half_rn(e4m3_value(weight[i]) * factor);
  }
}

}  // namespace vllm_volta

#include "dequantize.h"

#include <algorithm>

#include "dequantize.cuh"

namespace vllm_volta {

namespace {

constexpr int THREADS = 256;
// Enough blocks to fill the 80 multiprocessors of a V100 (2048 threads each) twice; the kernels stride over the rest.
constexpr long long MOST_BLOCKS = 80 * 8 * 2;

int grid_for(long long pieces) {
  return static_cast<int>(std::min((pieces + THREADS - 1) / THREADS, MOST_BLOCKS));
}

}  // namespace

cudaError_t launch_dequantize_nvfp4(const void* packed, const void* block_scale, const float* global_scale, void* out,
                                    long long blocks, cudaStream_t stream) {
  dequantize_nvfp4_kernel<<<grid_for(blocks), THREADS, 0, stream>>>(
      static_cast<const uint2*>(packed), static_cast<const unsigned char*>(block_scale), global_scale,
      static_cast<uint4*>(out), blocks);
  return cudaGetLastError();
}

cudaError_t launch_dequantize_fp8(const void* weight, const float* scale, void* out, int rows, int columns,
                                  int block_rows, int block_columns, cudaStream_t stream) {
  const long long values = static_cast<long long>(rows) * columns;
  if (columns % 16 == 0 && block_columns % 16 == 0) {
    dequantize_fp8_kernel<<<grid_for(values / 16), THREADS, 0, stream>>>(static_cast<const uint4*>(weight), scale,
                                                                         static_cast<uint4*>(out), rows, columns,
                                                                         block_rows, block_columns);
  } else {
    dequantize_fp8_unaligned_kernel<<<grid_for(values), THREADS, 0, stream>>>(
        static_cast<const unsigned char*>(weight), scale, static_cast<__half*>(out), rows, columns, block_rows,
        block_columns);
  }
  return cudaGetLastError();
}

}  // namespace vllm_volta

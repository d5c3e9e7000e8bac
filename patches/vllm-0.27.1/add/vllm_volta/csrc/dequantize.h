// Starts the kernels of dequantize.cuh; all pointers are the device's.

#pragma once

#include <cuda_runtime_api.h>

namespace vllm_volta {

// packed, out: aligned to 16 bytes. blocks: groups of 16 values.
cudaError_t launch_dequantize_nvfp4(const void* packed, const void* block_scale, const float* global_scale, void* out,
                                    long long blocks, cudaStream_t stream);

// weight, out: aligned to 16 bytes. block_rows, block_columns: the tile that shares one scale, at least 1 each.
cudaError_t launch_dequantize_fp8(const void* weight, const float* scale, void* out, int rows, int columns,
                                  int block_rows, int block_columns, cudaStream_t stream);

}  // namespace vllm_volta

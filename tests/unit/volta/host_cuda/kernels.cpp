// The kernels of dequantize.cuh as functions of a shared library, run by few threads so that each does several pieces.

#include "dequantize.cuh"

extern "C" {

float one_e4m3(unsigned int code) { return vllm_volta::e4m3_value(code); }

float one_e2m1(unsigned int code) { return vllm_volta::e2m1_value(code); }

void nvfp4(const void* packed, const void* block_scale, const float* global_scale, void* out, long long blocks) {
  launch(2, 3, vllm_volta::dequantize_nvfp4_kernel, static_cast<const uint2*>(packed),
         static_cast<const unsigned char*>(block_scale), global_scale, static_cast<uint4*>(out), blocks);
}

void fp8(const void* weight, const float* scale, void* out, int rows, int columns, int block_rows, int block_columns) {
  launch(2, 3, vllm_volta::dequantize_fp8_kernel, static_cast<const uint4*>(weight), scale, static_cast<uint4*>(out),
         rows, columns, block_rows, block_columns);
}

void fp8_unaligned(const void* weight, const float* scale, void* out, int rows, int columns, int block_rows,
                   int block_columns) {
  launch(2, 3, vllm_volta::dequantize_fp8_unaligned_kernel, static_cast<const unsigned char*>(weight), scale,
         static_cast<__half*>(out), rows, columns, block_rows, block_columns);
}

}  // extern "C"

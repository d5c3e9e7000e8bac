// The kernels as functions of a shared library. Each returns what went wrong, or null (thread_blocks.h).

#include "attention.h"
#include "device_code.cu"
#include "thread_blocks.h"

namespace {

template <typename Work>
struct Call {
  void (*kernel)(Work);
  const Work* work;
};

template <typename Work>
const char* run_kernel(void (*kernel)(Work), const Work* work, const host_cuda::Launch* launch) {
  const Call<Work> call{kernel, work};
  const auto thread = [](const void* argument) {
    const Call<Work>& mine = *static_cast<const Call<Work>*>(argument);
    mine.kernel(*mine.work);
  };
  return host_cuda::run(*launch, thread, &call);
}

// Few threads, in order, so that each does several pieces.
template <typename Kernel>
const char* run_by_few(const Kernel& kernel) {
  const unsigned int in_order[] = {0, 1, 2};
  const auto thread = [](const void* argument) { (*static_cast<const Kernel*>(argument))(); };
  return host_cuda::run({2, 2, 1, 3, 1, 0, 0, in_order, in_order}, thread, &kernel);
}

}  // namespace

extern "C" {

unsigned long panel_matmul_bytes() { return sizeof(vllm_volta::PanelMatmul); }

unsigned long panel_dequantize_bytes() { return sizeof(vllm_volta::PanelDequantize); }

int panel_warps() { return vllm_volta::PANEL_WARPS; }

int dequantize_warps() { return vllm_volta::DEQUANTIZE_WARPS; }

const char* run_panel_matmul(void (*kernel)(vllm_volta::PanelMatmul), const vllm_volta::PanelMatmul* work,
                             const host_cuda::Launch* launch) {
  return run_kernel(kernel, work, launch);
}

const char* run_panel_dequantize(void (*kernel)(vllm_volta::PanelDequantize), const vllm_volta::PanelDequantize* work,
                                 const host_cuda::Launch* launch) {
  return run_kernel(kernel, work, launch);
}

unsigned long paged_attention_bytes() { return sizeof(vllm_volta::PagedAttention); }

unsigned long cache_write_bytes() { return sizeof(vllm_volta::CacheWrite); }

int split_threads() { return 32 * vllm_volta::SPLIT_WARPS; }

int tiled_threads() { return 32 * vllm_volta::TILED_WARPS; }

int split_unit() { return vllm_volta::SPLIT_UNIT; }

int padded_head_size(int head_size) { return vllm_volta::padded_head_size(head_size); }

int tiled_rows(int head_size) { return vllm_volta::tiled_rows(head_size); }

int tiled_shared_bytes(int head_size) { return vllm_volta::tiled_shared_bytes(head_size); }

long long tiled_blocks(int tokens, int requests, int group, int head_size) {
  return vllm_volta::tiled_blocks(tokens, requests, group, head_size);
}

long long partial_floats(int blocks, int rows, int padded) { return vllm_volta::partial_floats(blocks, rows, padded); }

int least_tiles_of_part() { return vllm_volta::LEAST_TILES_OF_PART; }

long long tiled_partial_floats(int blocks, int head_size) { return vllm_volta::tiled_partial_floats(blocks, head_size); }

long long arrival_counters(int tokens, int requests, int kv_heads, int group, int rows) {
  return vllm_volta::arrival_counters(tokens, requests, kv_heads, group, rows);
}

const char* run_paged_attention(void (*kernel)(vllm_volta::PagedAttention), const vllm_volta::PagedAttention* work,
                                const host_cuda::Launch* launch) {
  return run_kernel(kernel, work, launch);
}

const char* run_cache_write(void (*kernel)(vllm_volta::CacheWrite), const vllm_volta::CacheWrite* work,
                            const host_cuda::Launch* launch) {
  return run_kernel(kernel, work, launch);
}

const char* run_words(void (*kernel)(unsigned int*), unsigned int* words, const host_cuda::Launch* launch) {
  struct Words {
    void (*kernel)(unsigned int*);
    unsigned int* words;
  };
  const Words call{kernel, words};
  const auto thread = [](const void* argument) {
    const Words& mine = *static_cast<const Words*>(argument);
    mine.kernel(mine.words);
  };
  return host_cuda::run(*launch, thread, &call);
}

float one_e4m3(unsigned int code) { return vllm_volta::e4m3_value(code); }

float one_e2m1(unsigned int code) { return vllm_volta::e2m1_value(code); }

const char* nvfp4(const void* packed, const void* block_scale, const float* global_scale, void* out,
                  long long blocks) {
  return run_by_few([=] {
    vllm_volta::dequantize_nvfp4_kernel(static_cast<const uint2*>(packed),
                                        static_cast<const unsigned char*>(block_scale), global_scale,
                                        static_cast<uint4*>(out), blocks);
  });
}

const char* fp8(const void* weight, const float* scale, void* out, int rows, int columns, int block_rows,
                int block_columns) {
  return run_by_few([=] {
    vllm_volta::dequantize_fp8_kernel(static_cast<const uint4*>(weight), scale, static_cast<uint4*>(out), rows, columns,
                                      block_rows, block_columns);
  });
}

const char* fp8_unaligned(const void* weight, const float* scale, void* out, int rows, int columns, int block_rows,
                          int block_columns) {
  return run_by_few([=] {
    vllm_volta::dequantize_fp8_unaligned_kernel(static_cast<const unsigned char*>(weight), scale,
                                                static_cast<__half*>(out), rows, columns, block_rows, block_columns);
  });
}

}  // extern "C"

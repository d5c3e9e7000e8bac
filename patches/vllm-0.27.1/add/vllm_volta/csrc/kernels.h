// The kernels of the embedded device code (device_code.h), and how one of them is started: what the launchers share.
//
// The device code is loaded when a kernel is first started, and a kernel on a GPU when it is first needed there: a
// process takes only what its model uses. Any thread may call these functions, with the GPU current as torch's guard
// makes it, also while it captures a CUDA graph. All of them raise LaunchError (driver.h).

#pragma once

#include <initializer_list>
#include <utility>

#include "attention_plan.h"
#include "panel_plan.h"
#include "panels.h"

namespace vllm_volta {

constexpr int FIRST_WITH_OCTETS = 80;
// Threads of a block that dequantises rows of a weight.
constexpr int ROW_THREADS = 256;

// Kernels by number: those of both formats and fragments, then those of both fragments, then single ones.
constexpr int DEQUANTIZE_PANELS = 2 * 2 * PANEL_KERNELS;
constexpr int SPLIT_ATTENTION = DEQUANTIZE_PANELS + 2 * 2;
constexpr int TILED_ATTENTION = SPLIT_ATTENTION + 2 * SPLIT_KERNELS;
constexpr int WRITE_CACHE = TILED_ATTENTION + 2 * ATTENTION_SIZES;
constexpr int DEQUANTIZE_NVFP4 = WRITE_CACHE + 1;
constexpr int DEQUANTIZE_FP8 = DEQUANTIZE_NVFP4 + 1;
constexpr int DEQUANTIZE_FP8_UNALIGNED = DEQUANTIZE_FP8 + 1;
constexpr int KERNELS = DEQUANTIZE_FP8_UNALIGNED + 1;

constexpr int matmul_number(Format format, Fragments fragments, int kernel) {
  return (format * 2 + fragments) * PANEL_KERNELS + kernel;
}
constexpr int dequantize_number(Format format, Fragments fragments) {
  return DEQUANTIZE_PANELS + format * 2 + fragments;
}
constexpr int split_number(Fragments fragments, int kernel) {
  return SPLIT_ATTENTION + fragments * SPLIT_KERNELS + kernel;
}
constexpr int tiled_number(Fragments fragments, int head_size) {
  return TILED_ATTENTION + fragments * ATTENTION_SIZES + attention_number(head_size);
}

// A GPU and the kernels that are loaded on it.
struct Device;

// The GPU of this number, which becomes the calling thread's if that has none.
Device& device_of(int number);

// Its compute capability, 70 for 7.0. Loads nothing.
int capability_of(int number);

// Raises LaunchError for octets on a GPU without them.
void check_fragments(Fragments fragments, int capability);
void check_fragments(Fragments fragments, const Device& device);

int multiprocessors_of(const Device& device);

// Thread blocks of a kernel that run at once on a multiprocessor; only of kernels that are started with so many.
int resident_blocks(Device& device, int kernel);

// Thread blocks for a kernel that strides over its work, of which a block does so many pieces at a time.
int striding_blocks(const Device& device, long long pieces, int pieces_of_block);

struct Grid {
  int x;
  int y = 1;
  int z = 1;
};

// Sizes that an error names.
using Sizes = std::initializer_list<std::pair<const char*, long long>>;

// parameters: a pointer to each parameter of the kernel. stream: a cudaStream_t.
void start(Device& device, int kernel, Grid grid, void** parameters, const Sizes& sizes, void* stream);

}  // namespace vllm_volta

// Weights in panels (panels.h) as rows of fp16: the kernels dequantize_{nvfp4,fp8}_panels_*.

#pragma once

#include "fragments.cuh"

namespace vllm_volta {

// One warp does one panel at a time: through shared memory, so that whole rows of 64 columns are written.
template <class Format, class Layout>
__device__ __forceinline__ void dequantize_panels(const PanelDequantize& work) {
  constexpr int ROW_PIECES = PANEL_COLUMNS / 8 + 1;  // of 16 bytes; the last one keeps rows in different banks
  __shared__ uint4 tiles[DEQUANTIZE_WARPS][PANEL_ROWS * ROW_PIECES];
  const int lane = threadIdx.x % 32;
  uint4* tile = tiles[threadIdx.x / 32];
  unsigned int* words = reinterpret_cast<unsigned int*>(tile);
  const int panels = (work.k + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
  const int first_group = work.first / PANEL_ROWS;
  const long long total = static_cast<long long>((work.last - work.first + PANEL_ROWS - 1) / PANEL_ROWS) * panels;
  const long long stride = static_cast<long long>(gridDim.x) * DEQUANTIZE_WARPS;
  for (long long i = static_cast<long long>(blockIdx.x) * DEQUANTIZE_WARPS + threadIdx.x / 32; i < total; i += stride) {
    const int group = static_cast<int>(i / panels);
    const int panel = static_cast<int>(i % panels);
    Format held;
    held.load(work.codes, work.scales, static_cast<long long>(first_group) * panels + i, lane);
#pragma unroll
    for (int two_steps = 0; two_steps < 2; ++two_steps) {
      unsigned int weights[2][8];
      held.template decode<Layout>(two_steps, weights);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int pair = 0; pair < 8; ++pair) {
          const int row = Layout::pair_row(lane, pair);
          const int column = Layout::pair_column(lane, 2 * two_steps + step, pair);
          words[row * (4 * ROW_PIECES) + column / 2] = weights[step][pair];
        }
      }
    }
    __syncwarp();
    // Eight lanes write one row's 128 bytes.
#pragma unroll
    for (int pass = 0; pass < PANEL_ROWS / 4; ++pass) {
      const int row = 4 * pass + lane / 8;
      const int column = panel * PANEL_COLUMNS + lane % 8 * 8;
      const int absolute_row = work.first + group * PANEL_ROWS + row;
      if (absolute_row < work.last && column < work.k) {
        uint4 values = tile[row * ROW_PIECES + lane % 8];
        if constexpr (Format::BLOCKS_IN_SUMS) {
          float scale = work.row_scale[absolute_row];
          if (work.scales != nullptr) {
            const int scale_columns = (work.k + work.block_columns - 1) / work.block_columns;
            scale *= static_cast<const float*>(
                work.scales)[absolute_row / work.block_rows * scale_columns + column / work.block_columns];
          }
          values = scaled_pairs(values, scale);
        }
        __half* out = static_cast<__half*>(work.out) + static_cast<long long>(absolute_row - work.first) * work.k;
        *reinterpret_cast<uint4*>(out + column) = values;
      }
    }
    __syncwarp();
  }
}

#define VOLTA_PANEL_DEQUANTIZE(NAME, FORMAT, LAYOUT)                                                    \
  extern "C" __global__ void __launch_bounds__(32 * DEQUANTIZE_WARPS) NAME(const PanelDequantize work) { \
    dequantize_panels<FORMAT, LAYOUT>(work);                                                            \
  }

VOLTA_PANEL_DEQUANTIZE(dequantize_nvfp4_panels_quad_pairs, Nvfp4, QuadPairs)
VOLTA_PANEL_DEQUANTIZE(dequantize_nvfp4_panels_octets, Nvfp4, Octets)
VOLTA_PANEL_DEQUANTIZE(dequantize_fp8_panels_quad_pairs, Fp8, QuadPairs)
VOLTA_PANEL_DEQUANTIZE(dequantize_fp8_panels_octets, Fp8, Octets)

}  // namespace vllm_volta

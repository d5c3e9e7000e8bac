// out = x w^T for weights in panels (panels.h), on tensor cores, with sums in fp32: the kernels {nvfp4,fp8}_panels_*.
//
// A thread block multiplies four groups of 32 rows with up to 64 tokens, one panel of each group at a time. Weights go
// from memory to registers, become fp16 there and are fragments at once; activations are staged in shared memory.

#pragma once

#include "fragments.cuh"

namespace vllm_volta {

constexpr int BLOCK_THREADS = 32 * PANEL_WARPS;
constexpr int BLOCK_ROWS = PANEL_ROWS * PANEL_WARPS;

// The part of the work that one thread block does, and who else works at the same rows. The launcher sees to it that
// there are at least as many units as blocks, and that units * blocks fits 32 bits.
struct Shares {
  unsigned int units;
  unsigned int blocks;

  __device__ int begin(unsigned int block) const { return static_cast<int>(block * units / blocks); }
  __device__ int block_of(unsigned int unit) const { return static_cast<int>(((unit + 1) * blocks - 1) / units); }
};

__device__ __forceinline__ int ceil_of(int value, int unit) { return (value + unit - 1) / unit; }

// Copies columns first to first + chunk of all tokens to shared memory; columns from k on become zero.
__device__ __forceinline__ void stage(const PanelMatmul& work, uint4* staged, int first) {
  constexpr int VALUES = 8;
  const int pieces = work.chunk / VALUES;
  const int row_pieces = pieces + STAGED_PADDING_BYTES / 16;
  const __half* x = static_cast<const __half*>(work.x);
  for (int i = threadIdx.x; i < work.m * pieces; i += BLOCK_THREADS) {
    const int token = i / pieces;
    const int piece = i % pieces;
    const int column = first + piece * VALUES;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (column < work.k) {
      value = *reinterpret_cast<const uint4*>(x + token * work.x_stride + column);
    }
    staged[token * row_pieces + piece] = value;
  }
}

__device__ __forceinline__ void write_result(const PanelMatmul& work, int token, int row, float sum) {
  float value = sum * work.row_scale[row];
  if (work.bias != nullptr) {
    value += __half2float(static_cast<const __half*>(work.bias)[row]);
  }
  static_cast<__half*>(work.out)[token * work.out_stride + row] = __float2half_rn(value);
}

// Where a thread block keeps its sums of rows that others work at too: it has at most two such blocks of rows, and of
// one of them it has the first panel.
__device__ __forceinline__ float* partial_of(const PanelMatmul& work, int block, bool has_first_panel, int columns) {
  return work.partial + (2ll * block + (has_first_panel ? 1 : 0)) * columns * BLOCK_ROWS;
}

// Adds up what the thread blocks `first` to `last` have of one block of rows, in this order, and writes the result.
__device__ __forceinline__ void write_sums(const PanelMatmul& work, int row_block, int first, int last, int columns) {
  for (int i = threadIdx.x; i < work.m * BLOCK_ROWS; i += BLOCK_THREADS) {
    const int token = i / BLOCK_ROWS;
    const int row = row_block * BLOCK_ROWS + i % BLOCK_ROWS;
    if (row < work.n) {
      float sum = 0;
      for (int block = first; block <= last; ++block) {
        sum += load_shared_result(partial_of(work, block, block == first, columns) + i);
      }
      write_result(work, token, row, sum);
    }
  }
}

// Adds the products of one panel and the staged activations to a lane's sums.
template <class Layout, class Format, int TILES>
__device__ __forceinline__ void multiply_panel(const Format& held, const uint4* panel_staged,
                                               const int (&token_pieces)[TILES], int lane,
                                               typename Format::BlockScale& block_scale, float (&sums)[TILES][8]) {
  float parts[Format::BLOCKS_IN_SUMS ? TILES : 1][8] = {};
#pragma unroll
  for (int two_steps = 0; two_steps < 2; ++two_steps) {
    unsigned int weights[2][8];
    held.template decode<Layout>(two_steps, weights);
    const uint4* mine = panel_staged + Layout::staged_column(lane, two_steps) / 8;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      uint4 activations[Layout::STAGED_PIECES];
#pragma unroll
      for (int piece = 0; piece < Layout::STAGED_PIECES; ++piece) {
        activations[piece] = mine[token_pieces[tile] + piece];
      }
      if constexpr (Format::BLOCKS_IN_SUMS) {
        Layout::multiply(parts[tile], weights, activations);
      } else {
        Layout::multiply(sums[tile], weights, activations);
      }
    }
  }
  if constexpr (Format::BLOCKS_IN_SUMS) {
    const float scale = block_scale.next();
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums[tile][i] += scale * parts[tile][i];
      }
    }
  }
}

template <class Format, class Layout, int TILES>
__device__ __forceinline__ void panel_matmul(const PanelMatmul& work) {
  extern __shared__ uint4 staged[];
  __shared__ bool arrived_last;
  constexpr int COLUMNS = 8 * TILES;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int panels = ceil_of(work.k, PANEL_COLUMNS);
  const int groups = ceil_of(work.n, PANEL_ROWS);
  const Shares shares{static_cast<unsigned int>(ceil_of(groups, PANEL_WARPS)) * panels, gridDim.x};
  const int end = shares.begin(blockIdx.x + 1);
  const int chunk_panels = work.chunk / PANEL_COLUMNS;
  const int row_pieces = work.chunk / 8 + STAGED_PADDING_BYTES / 16;

  // Tokens past the last are the last once more: their sums are not stored.
  int token_pieces[TILES];
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    token_pieces[tile] = min(8 * tile + Layout::token(lane), work.m - 1) * row_pieces;
  }

  int staged_chunk = -1;
  for (int unit = shares.begin(blockIdx.x); unit < end;) {
    const int row_block = unit / panels;
    const int first = unit - row_block * panels;
    const int last = min(panels, first + end - unit);
    unit += last - first;
    // A warp past the last group does the last one once more: its sums are not stored.
    const bool has_rows = row_block * PANEL_WARPS + warp < groups;
    const int group = min(row_block * PANEL_WARPS + warp, groups - 1);
    const long long group_panels = static_cast<long long>(group) * panels;

    float sums[TILES][8] = {};
    typename Format::BlockScale block_scale(work, group, first);
    Format held[Format::AHEAD + 1];
#pragma unroll
    for (int ahead = 0; ahead < Format::AHEAD; ++ahead) {
      if (first + ahead < last) {
        held[ahead].load(work.codes, work.scales, group_panels + first + ahead, lane);
      }
    }
    for (int panel = first; panel < last;) {
      const int chunk = panel / chunk_panels;
      if (chunk != staged_chunk) {
        __syncthreads();
        stage(work, staged, chunk * work.chunk);
        __syncthreads();
        staged_chunk = chunk;
      }
      const int stop = min(last, (chunk + 1) * chunk_panels);
      const uint4* panel_staged = staged + (panel - chunk * chunk_panels) * (PANEL_COLUMNS / 8);
#pragma unroll (TILES == 1 ? Format::UNROLLED : 1)
      for (; panel < stop; ++panel, panel_staged += PANEL_COLUMNS / 8) {
        if (panel + Format::AHEAD < last) {
          held[Format::AHEAD].load(work.codes, work.scales, group_panels + panel + Format::AHEAD, lane);
        }
        multiply_panel<Layout>(held[0], panel_staged, token_pieces, lane, block_scale, sums);
#pragma unroll
        for (int ahead = 0; ahead < Format::AHEAD; ++ahead) {
          held[ahead] = held[ahead + 1];
        }
      }
    }

    const int first_block = shares.block_of(row_block * panels);
    const int last_block = shares.block_of((row_block + 1) * panels - 1);
    float* partial = partial_of(work, blockIdx.x, first == 0, COLUMNS);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int token = 8 * tile + Layout::sum_token(lane, i);
        const int row = warp * PANEL_ROWS + Layout::sum_row(lane, i);
        if (token < work.m && has_rows) {
          if (first_block != last_block) {
            partial[token * BLOCK_ROWS + row] = sums[tile][i];
          } else if (row_block * BLOCK_ROWS + row < work.n) {
            write_result(work, token, row_block * BLOCK_ROWS + row, sums[tile][i]);
          }
        }
      }
    }
    if (first_block != last_block) {
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        arrived_last = atomicAdd(&work.arrivals[row_block], 1u) == static_cast<unsigned int>(last_block - first_block);
      }
      __syncthreads();
      if (arrived_last) {
        __threadfence();
        write_sums(work, row_block, first_block, last_block, COLUMNS);
        if (threadIdx.x == 0) {
          work.arrivals[row_block] = 0;
        }
      }
    }
  }
}

// BLOCKS: how many thread blocks of one multiprocessor (65536 registers) the registers must allow.
#define VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, TOKENS, BLOCKS)                                                \
  extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS) NAME##_##TOKENS(const PanelMatmul work) { \
    panel_matmul<FORMAT, LAYOUT, TOKENS / 8>(work);                                                             \
  }
#define VOLTA_PANEL_KERNELS(NAME, FORMAT, LAYOUT) \
  VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, 8, 4)  \
  VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, 16, 4) \
  VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, 32, 3) \
  VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, 64, 2)

VOLTA_PANEL_KERNELS(nvfp4_panels_quad_pairs, Nvfp4, QuadPairs)
VOLTA_PANEL_KERNELS(nvfp4_panels_octets, Nvfp4, Octets)
VOLTA_PANEL_KERNELS(fp8_panels_quad_pairs, Fp8, QuadPairs)
VOLTA_PANEL_KERNELS(fp8_panels_octets, Fp8, Octets)

}  // namespace vllm_volta

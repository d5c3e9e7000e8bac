// out = x w^T for weights in panels (panels.h), on tensor cores, with sums in fp32: the kernels {nvfp4,fp8}_panels_*.
//
// A thread block multiplies four groups of 32 rows with up to 64 tokens, one panel of each group at a time. Weights go
// from memory to registers, become fp16 there and are fragments at once. Activations go through shared memory: while
// one chunk of their columns is multiplied, the next one is on its way.

#pragma once

#include "fragments.cuh"

namespace vllm_volta {

// What the most tokens of a kernel decide.
template <int MOST_TOKENS>
struct Shape {
  static constexpr int TOKENS = MOST_TOKENS;
  static constexpr int TILES = (TOKENS + 7) / 8;
  static constexpr int THREADS = 32 * PANEL_WARPS;
  static constexpr int ROWS = PANEL_ROWS * PANEL_WARPS;
  // Activations of one chunk: 8 KB, a few pieces of 16 bytes for each thread.
  static constexpr int THREAD_PIECES = 4;
  static constexpr int TOKEN_PIECES = THREADS * THREAD_PIECES / TOKENS;
  static constexpr int CHUNK_PANELS = TOKEN_PIECES * 8 / PANEL_COLUMNS;
  // One piece more between tokens: 128-bit reads of several tokens then fall into different banks.
  static constexpr int STAGED_TOKEN_PIECES = TOKEN_PIECES + 1;

  // Where the activations begin that a lane reads for a tile of 8 tokens. A single token is everybody's.
  template <class Layout>
  __device__ static int staged_token(int lane) {
    return TOKENS < 8 ? 0 : Layout::token(lane) * STAGED_TOKEN_PIECES;
  }
  static constexpr int TILE_PIECES = 8 * STAGED_TOKEN_PIECES;
};

// The part of the work that one thread block does, and who else works at the same rows.
struct Shares {
  unsigned int units;
  unsigned int blocks;

  __device__ int begin(unsigned int block) const { return static_cast<int>(block * units / blocks); }
  __device__ int block_of(unsigned int unit) const { return static_cast<int>(((unit + 1) * blocks - 1) / units); }
};

__device__ __forceinline__ int ceil_of(int value, int unit) { return (value + unit - 1) / unit; }

// One chunk of activations on its way from memory, through registers, to shared memory.
template <class S>
struct Chunk {
  uint4 pieces[S::THREAD_PIECES];

  // Columns from `first` on; those from k on are zero, and so are tokens from m on.
  __device__ void load(const PanelMatmul& work, int first) {
#pragma unroll
    for (int i = 0; i < S::THREAD_PIECES; ++i) {
      const int piece = threadIdx.x + i * S::THREADS;
      const int token = piece / S::TOKEN_PIECES;
      const int column = first + piece % S::TOKEN_PIECES * 8;
      pieces[i] = make_uint4(0, 0, 0, 0);
      if (token < work.m && column < work.k) {
        const __half* row = static_cast<const __half*>(work.x) + token * work.x_stride;
        pieces[i] = *reinterpret_cast<const uint4*>(row + column);
      }
    }
  }

  __device__ void store(uint4* staged) const {
#pragma unroll
    for (int i = 0; i < S::THREAD_PIECES; ++i) {
      const int piece = threadIdx.x + i * S::THREADS;
      staged[piece / S::TOKEN_PIECES * S::STAGED_TOKEN_PIECES + piece % S::TOKEN_PIECES] = pieces[i];
    }
  }
};

__device__ __forceinline__ void write_result(const PanelMatmul& work, int token, int row, float sum) {
  float value = sum * work.row_scale[row];
  if (work.bias != nullptr) {
    value += __half2float(static_cast<const __half*>(work.bias)[row]);
  }
  static_cast<__half*>(work.out)[token * work.out_stride + row] = __float2half_rn(value);
}

// Where a thread block keeps its sums of rows that others work at too: it has at most two such blocks of rows, and of
// one of them it has the first panel.
template <class S>
__device__ __forceinline__ float* partial_of(const PanelMatmul& work, int block, bool has_first_panel) {
  return work.partial + (2ll * block + (has_first_panel ? 1 : 0)) * (S::TOKENS * S::ROWS);
}

// Adds up what the thread blocks `first` to `last` have of one block of rows, in this order, and writes the result.
template <class S>
__device__ __forceinline__ void write_sums(const PanelMatmul& work, int row_block, int first, int last) {
  // Four neighbouring rows at once, and several such loads in flight.
  constexpr int AT_ONCE = S::TILES;
  const int quads = work.m * (S::ROWS / 4);
  for (int begin = threadIdx.x; begin < quads; begin += AT_ONCE * S::THREADS) {
    float4 sums[AT_ONCE] = {};
#pragma unroll 4
    for (int block = first; block <= last; ++block) {
      const float4* partial = reinterpret_cast<const float4*>(partial_of<S>(work, block, block == first));
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        if (begin + i * S::THREADS < quads) {
          const float4 more = load_shared_result(partial + begin + i * S::THREADS);
          sums[i].x += more.x;
          sums[i].y += more.y;
          sums[i].z += more.z;
          sums[i].w += more.w;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int quad = begin + i * S::THREADS;
      const int token = quad / (S::ROWS / 4);
      const int row = row_block * S::ROWS + quad % (S::ROWS / 4) * 4;
      const float values[4] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        if (quad < quads && row + part < work.n) {
          write_result(work, token, row + part, values[part]);
        }
      }
    }
  }
}

// Adds the products of one panel and the staged activations to a lane's sums. `mine`: the lane's token of the first
// tile.
template <class S, class Layout, class Format>
__device__ __forceinline__ void multiply_panel(const Format& held, const uint4* mine, int lane,
                                               typename Format::BlockScale& block_scale, float (&sums)[S::TILES][8]) {
  float parts[Format::BLOCKS_IN_SUMS ? S::TILES : 1][8] = {};
#pragma unroll
  for (int two_steps = 0; two_steps < 2; ++two_steps) {
    unsigned int weights[2][8];
    held.template decode<Layout>(two_steps, weights);
    const uint4* pieces = mine + Layout::staged_column(lane, two_steps) / 8;
#pragma unroll
    for (int tile = 0; tile < S::TILES; ++tile) {
      uint4 activations[Layout::STAGED_PIECES];
#pragma unroll
      for (int piece = 0; piece < Layout::STAGED_PIECES; ++piece) {
        activations[piece] = pieces[tile * S::TILE_PIECES + piece];
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
    for (int tile = 0; tile < S::TILES; ++tile) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums[tile][i] += scale * parts[tile][i];
      }
    }
  }
}

// Calls use(sum, token, row within the block of rows) for the sums that a lane has.
template <class S, class Layout, class Use>
__device__ __forceinline__ void for_each_sum(const PanelMatmul& work, int warp, int lane, float (&sums)[S::TILES][8],
                                             Use use) {
#pragma unroll
  for (int tile = 0; tile < S::TILES; ++tile) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int token = 8 * tile + Layout::sum_token(lane, i);
      if (token < work.m) {
        use(sums[tile][i], token, warp * PANEL_ROWS + Layout::sum_row(lane, i));
      }
    }
  }
}

template <class Format, class Layout, class S>
__device__ __forceinline__ void panel_matmul(const PanelMatmul& work) {
  __shared__ uint4 staged[2][S::TOKENS * S::STAGED_TOKEN_PIECES];
  __shared__ bool arrived_last;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int panels = ceil_of(work.k, PANEL_COLUMNS);
  const int groups = ceil_of(work.n, PANEL_ROWS);
  const Shares shares{static_cast<unsigned int>(ceil_of(groups, PANEL_WARPS)) * panels, gridDim.x};
  const int end = shares.begin(blockIdx.x + 1);

  for (int unit = shares.begin(blockIdx.x); unit < end;) {
    const int row_block = unit / panels;
    const int first = unit - row_block * panels;
    const int last = min(panels, first + end - unit);
    unit += last - first;
    // A warp past the last group does the last one once more: its sums are not stored.
    const bool has_rows = row_block * PANEL_WARPS + warp < groups;
    const int group = min(row_block * PANEL_WARPS + warp, groups - 1);
    const long long group_panels = static_cast<long long>(group) * panels;

    Chunk<S> chunk;
    chunk.load(work, first * PANEL_COLUMNS);
    float sums[S::TILES][8] = {};
    typename Format::BlockScale block_scale(work, group, first);
    Format held[Format::AHEAD + 1];
#pragma unroll
    for (int ahead = 0; ahead < Format::AHEAD; ++ahead) {
      if (first + ahead < last) {
        held[ahead].load(work.codes, work.scales, group_panels + first + ahead, lane);
      }
    }
    chunk.store(staged[0]);
    __syncthreads();
    int buffer = 0;
    for (int panel = first; panel < last;) {
      const int stop = panel + S::CHUNK_PANELS;
      if (stop < last) {
        chunk.load(work, stop * PANEL_COLUMNS);
      }
      const uint4* mine = staged[buffer] + S::template staged_token<Layout>(lane);
#pragma unroll (S::TILES == 1 ? Format::UNROLLED : 1)
      for (; panel < min(stop, last); ++panel, mine += PANEL_COLUMNS / 8) {
        if (panel + Format::AHEAD < last) {
          held[Format::AHEAD].load(work.codes, work.scales, group_panels + panel + Format::AHEAD, lane);
        }
        multiply_panel<S, Layout>(held[0], mine, lane, block_scale, sums);
#pragma unroll
        for (int ahead = 0; ahead < Format::AHEAD; ++ahead) {
          held[ahead] = held[ahead + 1];
        }
      }
      buffer ^= 1;
      if (stop < last) {
        chunk.store(staged[buffer]);
      }
      __syncthreads();
    }

    const int first_row = row_block * S::ROWS;
    const int first_block = shares.block_of(row_block * panels);
    const int last_block = shares.block_of((row_block + 1) * panels - 1);
    const unsigned int others = last_block - first_block;
    if (others == 0) {
      for_each_sum<S, Layout>(work, warp, lane, sums, [&](float& sum, int token, int row) {
        if (has_rows && first_row + row < work.n) {
          write_result(work, token, first_row + row, sum);
        }
      });
      continue;
    }
    float* partial = partial_of<S>(work, blockIdx.x, first == 0);
    for_each_sum<S, Layout>(work, warp, lane, sums, [&](float& sum, int token, int row) {
      if (has_rows) {
        partial[token * S::ROWS + row] = sum;
      }
    });
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      arrived_last = atomicAdd(&work.arrivals[row_block], 1u) == others;
    }
    __syncthreads();
    if (arrived_last) {
      __threadfence();
      write_sums<S>(work, row_block, first_block, last_block);
      if (threadIdx.x == 0) {
        work.arrivals[row_block] = 0;
      }
    }
  }
}

// BLOCKS_n: how many thread blocks of one multiprocessor (65536 registers) the registers of the kernel for n tokens
// must allow; more would spill.
#define VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, TOKENS, BLOCKS)                                                  \
  extern "C" __global__ void __launch_bounds__(32 * PANEL_WARPS, BLOCKS) NAME##_##TOKENS(const PanelMatmul work) { \
    panel_matmul<FORMAT, LAYOUT, Shape<TOKENS>>(work);                                                            \
  }
#define VOLTA_PANEL_KERNELS(NAME, FORMAT, LAYOUT, BLOCKS_1, BLOCKS_8, BLOCKS_16, BLOCKS_32, BLOCKS_64) \
  VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, 1, BLOCKS_1)                                                \
  VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, 8, BLOCKS_8)                                                \
  VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, 16, BLOCKS_16)                                              \
  VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, 32, BLOCKS_32)                                              \
  VOLTA_PANEL_KERNEL(NAME, FORMAT, LAYOUT, 64, BLOCKS_64)

VOLTA_PANEL_KERNELS(nvfp4_panels_quad_pairs, Nvfp4, QuadPairs, 4, 4, 4, 3, 2)
VOLTA_PANEL_KERNELS(nvfp4_panels_octets, Nvfp4, Octets, 6, 6, 4, 3, 2)
VOLTA_PANEL_KERNELS(fp8_panels_quad_pairs, Fp8, QuadPairs, 4, 4, 3, 2, 1)
VOLTA_PANEL_KERNELS(fp8_panels_octets, Fp8, Octets, 4, 4, 3, 2, 1)

}  // namespace vllm_volta

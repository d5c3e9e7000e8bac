// Which weights, activations and sums a lane has, for the two kinds of fragments of panels.h.
//
// A step multiplies 32 rows by 16 columns; in two steps a lane needs 32 columns of its token at the most.

#pragma once

#include "panels.h"
#if defined(__CUDACC__)
  #include "warp.cuh"
#else
  #include "host_warp.h"
#endif

namespace vllm_volta {

// mma.m8n8k4 of Volta: each quad pair has 8 rows of its own and the same 8 tokens.
struct QuadPairs {
  // 16-byte pieces of activations that a lane reads for two steps.
  static constexpr int STAGED_PIECES = 4;

  __device__ static int row_in_eight(int lane) { return 4 * (lane / 16) + lane % 4; }
  __device__ static int pair_row(int lane, int) { return 8 * (lane / 4 % 4) + row_in_eight(lane); }
  __device__ static int pair_column(int, int step, int pair) { return 16 * step + 2 * pair; }
  __device__ static constexpr int scale_of(int step, int) { return step; }
  // The token, of eight, whose activations the lane holds.
  __device__ static int token(int lane) { return row_in_eight(lane); }
  // Where in the panel the activations of two steps begin.
  __device__ static int staged_column(int, int two_steps) { return 32 * two_steps; }

  __device__ static void multiply(float (&sums)[8], const unsigned int (&weights)[2][8], const uint4* staged) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 piece = staged[2 * step + half];
        const unsigned int b[4] = {piece.x, piece.y, piece.z, piece.w};
        multiply_m8n8k4(sums, &weights[step][4 * half], b);
        multiply_m8n8k4(sums, &weights[step][4 * half + 2], b + 2);
      }
    }
  }

  __device__ static int sum_row(int lane, int i) { return 8 * (lane / 4 % 4) + 4 * (lane / 16) + lane % 2 + (i & 2); }
  __device__ static int sum_token(int lane, int i) { return (i & 4) + (lane & 2) + (i & 1); }
};

// wmma.m32n8k16 as it is from 8.0 on: two m16n8k16, eight groups of four lanes.
struct Octets {
  static constexpr int STAGED_PIECES = 1;

  __device__ static int pair_row(int lane, int pair) { return lane / 4 + 8 * (pair % 2 + 2 * (pair / 4)); }
  __device__ static int pair_column(int lane, int step, int pair) {
    return 16 * (lane % 4) + 4 * step + 2 * (pair / 2 % 2);
  }
  __device__ static constexpr int scale_of(int, int pair) { return pair % 2 + 2 * (pair / 4); }
  __device__ static int token(int lane) { return lane / 4; }
  __device__ static int staged_column(int lane, int two_steps) { return 16 * (lane % 4) + 8 * two_steps; }

  __device__ static void multiply(float (&sums)[8], const unsigned int (&weights)[2][8], const uint4* staged) {
    const uint4 piece = staged[0];
    const unsigned int b[4] = {piece.x, piece.y, piece.z, piece.w};
    multiply_m32n8k16(sums, weights[0], b);
    multiply_m32n8k16(sums, weights[1], b + 2);
  }

  __device__ static int sum_row(int lane, int i) { return lane / 4 + 8 * (i / 2); }
  __device__ static int sum_token(int lane, int i) { return 2 * (lane % 4) + i % 2; }
};

// Four pairs of fp16 numbers from the eight NVFP4 codes of a word, times 2^-14.
__device__ __forceinline__ void decode_word(unsigned int word, unsigned int* pairs) {
  constexpr unsigned int SIGNS = 0x80008000u;
  constexpr unsigned int MAGNITUDES = 0x0e000e00u;
  pairs[0] = word & (SIGNS | MAGNITUDES);
  pairs[1] = (word << 3) & (SIGNS | MAGNITUDES);
  pairs[2] = ((word << 6) & MAGNITUDES) | ((word << 1) & SIGNS);
  pairs[3] = ((word << 9) & MAGNITUDES) | ((word << 2) & SIGNS);
}

// Two pairs of fp16 numbers from the four FP8 codes of a word, times 2^-8.
__device__ __forceinline__ void decode_fp8_word(unsigned int word, unsigned int* pairs) {
  constexpr unsigned int SIGNS = 0x80008000u;
  constexpr unsigned int MAGNITUDES = 0x3f803f80u;
  pairs[0] = word & (SIGNS | MAGNITUDES);
  pairs[1] = ((word << 7) & MAGNITUDES) | ((word << 1) & SIGNS);
}

// What a lane has of one NVFP4 panel.
struct Nvfp4 {
  static constexpr int PIECES = 2;  // of 16 bytes
  static constexpr int AHEAD = 1;   // panels that are loaded before they are needed
  // Panels in a round of the loop, where registers are not short: held ones need not be moved from one to the other.
  static constexpr int UNROLLED = AHEAD + 1;
  static constexpr bool BLOCKS_IN_SUMS = false;

  // The scales are in the weights that are decoded.
  struct BlockScale {
    __device__ BlockScale(const PanelMatmul&, int, int) {}
  };

  uint4 codes[PIECES];
  unsigned int scales;

  __device__ void load(const void* all_codes, const void* all_scales, long long panel, int lane) {
    const uint4* pieces = static_cast<const uint4*>(all_codes) + panel * (PIECES * 32) + lane;
    codes[0] = load_streamed(pieces);
    codes[1] = load_streamed(pieces + 32);
    scales = load_streamed(static_cast<const unsigned int*>(all_scales) + panel * 32 + lane);
  }

  // Weights times 2^-14 of the steps 2 * two_steps and the next.
  template <class Layout>
  __device__ void decode(int two_steps, unsigned int (&weights)[2][8]) const {
    // E4M3 bits moved to an fp16 number are the scale times 2^-8.
    constexpr unsigned int TWO_TO_8 = 0x5c005c00u;
    const unsigned int pairs[2] = {multiply_pairs(lower_bytes_as_halves(scales) >> 1, TWO_TO_8),
                                   multiply_pairs(upper_bytes_as_halves(scales) >> 1, TWO_TO_8)};
    const uint4 piece = codes[two_steps];
    const unsigned int words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      decode_word(words[2 * step], weights[step]);
      decode_word(words[2 * step + 1], weights[step] + 4);
#pragma unroll
      for (int pair = 0; pair < 8; ++pair) {
        const int scale = Layout::scale_of(2 * two_steps + step, pair);
        const unsigned int both = pairs[scale / 2];
        weights[step][pair] =
            multiply_pairs(weights[step][pair], scale % 2 == 0 ? lower_twice(both) : upper_twice(both));
      }
    }
  }
};

// What a lane has of one FP8 panel.
struct Fp8 {
  static constexpr int PIECES = 4;
  static constexpr int AHEAD = 1;
  static constexpr int UNROLLED = 1;
  static constexpr bool BLOCKS_IN_SUMS = true;

  // The scales of one panel after the other of a group of rows.
  struct BlockScale {
    const float* scale;
    int block_panels;
    int panel_in_block;

    __device__ BlockScale(const PanelMatmul& work, int group, int first_panel)
        : scale(static_cast<const float*>(work.scales)), block_panels(0), panel_in_block(0) {
      if (scale != nullptr) {
        block_panels = work.block_columns / PANEL_COLUMNS;
        panel_in_block = first_panel % block_panels;
        const int columns = (work.k + work.block_columns - 1) / work.block_columns;
        scale += static_cast<long long>(group * PANEL_ROWS / work.block_rows) * columns + first_panel / block_panels;
      }
    }

    __device__ float next() {
      if (scale == nullptr) {
        return 1;
      }
      const float value = *scale;
      if (++panel_in_block == block_panels) {
        panel_in_block = 0;
        ++scale;
      }
      return value;
    }
  };

  uint4 codes[PIECES];

  __device__ void load(const void* all_codes, const void*, long long panel, int lane) {
    const uint4* pieces = static_cast<const uint4*>(all_codes) + panel * (PIECES * 32) + lane;
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      codes[piece] = load_streamed(pieces + 32 * piece);
    }
  }

  // Weights times 2^-8, without scale, of the steps 2 * two_steps and the next.
  template <class Layout>
  __device__ void decode(int two_steps, unsigned int (&weights)[2][8]) const {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint4 piece = codes[2 * two_steps + step];
      decode_fp8_word(piece.x, weights[step]);
      decode_fp8_word(piece.y, weights[step] + 2);
      decode_fp8_word(piece.z, weights[step] + 4);
      decode_fp8_word(piece.w, weights[step] + 6);
    }
  }
};

}  // namespace vllm_volta

// How quantised weights lie in memory for the kernels of panel_matmul.cuh, and what those kernels are started with.
// Plain C++ without headers, so that the launcher, NVRTC and the emulation on the host read the same text.
//
// A weight [n, k] is cut into panels of 32 rows x 64 columns, padded with zeros: ceil(n / 32) groups of rows, each of
// ceil(k / 64) panels. One warp multiplies one panel at a time. Each of its 32 lanes owns 64 of the 2048 weights, and
// they lie together, in the order in which the lane puts them into tensor core fragments:
//
//     codes of one NVFP4 panel, 1024 bytes                      one 16-byte piece: steps 0 and 1 (or 2 and 3)
//     +--------------------------+--------------------------+   +--------+--------+--------+--------+
//     | pieces of lane 0 ... 31  | pieces of lane 0 ... 31  |   | step 0 | step 0 | step 1 | step 1 |   4 words,
//     | steps 0, 1               | steps 2, 3               |   | pairs  | pairs  | pairs  | pairs  |   8 codes each
//     +--------------------------+--------------------------+   | 0 to 3 | 4 to 7 | 0 to 3 | 4 to 7 |
//                                                               +--------+--------+--------+--------+
//
// A step is a multiplication by 16 columns. In it a lane holds 16 weights as 8 pairs, each a 32-bit register of a
// fragment. An FP8 panel has 2048 bytes: four such blocks, one for each step, of 4 words, 2 pairs each.
//
// Which weights a lane owns depends on the fragments of the tensor cores (PTX ISA, "Matrix fragments for mma.m8n8k4"
// for Volta; what wmma.load.m32n8k16 does on 8.0 and later, held to the machine by a test):
//
//     quad pairs (7.0): row 8 * (lane / 4 % 4) + 4 * (lane / 16) + lane % 4 of the group, all 64 columns.
//         step s, pair j: columns 16 s + 2 j and the next.            4 scales: one for each step.
//     octets (8.0 and later): rows g, g + 8, g + 16, g + 24 with g = lane / 4, columns 16 (lane % 4) to + 15.
//         step s, pair j: row g + 8 * (j % 2 + 2 * (j / 4)), columns 16 (lane % 4) + 4 s + 2 * (j / 2 % 2) and the
//         next.                                                       4 scales: one for each row.
//
// A lane's four E4M3 block scales are one word, the first in its lowest byte: 128 bytes for a panel.
//
// Bits of the four NVFP4 codes c0 to c3 in each half of a word (low half: the pair's first column), so that each code
// becomes fp16 with few operations. s, e, e, m of a code become the bits 15, 11, 10, 9 of an fp16 number, which is the
// code's value times 2^-14:
//
//     bit  15 14 13 12 11 10  9  8  7  6  5  4  3  2  1  0
//          s0 s2 s3 s1 e0 e0 m0 e1 e1 m1 e2 e2 m2 e3 e3 m3
//
// Bits of the two FP8 codes c0, c1 in each half of a word (value times 2^-8 as fp16: sign at bit 15, the rest at 13-7):
//
//     bit  15 14 13 12 11 10  9  8  7  6  5  4  3  2  1  0
//          s0 s1 e0 e0 e0 e0 m0 m0 m0 e1 e1 e1 e1 m1 m1 m1

#pragma once

namespace vllm_volta {

constexpr int PANEL_ROWS = 32;
constexpr int PANEL_COLUMNS = 64;
constexpr int NVFP4_PANEL_BYTES = PANEL_ROWS * PANEL_COLUMNS / 2;
constexpr int FP8_PANEL_BYTES = PANEL_ROWS * PANEL_COLUMNS;
constexpr int PANEL_SCALE_BYTES = PANEL_ROWS * PANEL_COLUMNS / 16;

// Warps of a thread block, and so groups of rows that it multiplies at once.
constexpr int PANEL_WARPS = 4;
// Most tokens of a kernel; more are multiplied in slices, since the sums of more would not fit the registers.
constexpr int MOST_PANEL_TOKENS = 64;

enum Fragments : int { QUAD_PAIRS = 0, OCTETS = 1 };

// Parameters of the kernels nvfp4_panels_* and fp8_panels_*. All pointers are the device's.
//
// A block of rows is PANEL_WARPS groups of rows. Work is counted in units: one panel of each of these groups. Thread
// block b of `gridDim.x` does the units from floor(b * units / blocks) to floor((b + 1) * units / blocks), one block of
// rows after the other. There are at least as many units as blocks, and units * blocks is below 2^32. What a thread
// block has of a block of rows that others work at too goes to `partial`; who arrives last adds it all up, in order of
// columns, so that the result does not depend on who that is.
struct PanelMatmul {
  const void* x;                 // fp16 [m, k], rows `x_stride` values apart, each aligned to 16 bytes
  const void* codes;             // panels
  const void* scales;            // NVFP4: the words of E4M3 scales
                                 // FP8: fp32 [ceil(n / block_rows), ceil(k / block_columns)] or null
  const float* row_scale;        // [n]: what the sums are multiplied by, in fp32
  const void* bias;              // fp16 [n] or null
  void* out;                     // fp16 [m, n], rows `out_stride` values apart
  float* partial;                // [2 * blocks, the kernel's tokens, 32 * PANEL_WARPS]
  unsigned int* arrivals;        // [blocks of rows], zero before and after
  long long x_stride;
  long long out_stride;
  int m;                         // tokens, at most the kernel's
  int n;
  int k;
  int block_rows;                // FP8 with blocks: rows (a multiple of 32) and columns (of 64) that share a scale
  int block_columns;
};

constexpr int DEQUANTIZE_WARPS = 4;

// Parameters of the kernels dequantize_{nvfp4,fp8}_panels_*: rows `first` (a multiple of 32) to `last` as fp16 [last -
// first, k]. NVFP4: code * block scale * 2^-14, exact. FP8: code * 2^-8 * block scale * row_scale, rounded.
struct PanelDequantize {
  const void* codes;
  const void* scales;
  const float* row_scale;        // [n], FP8 only
  void* out;
  int first;
  int last;
  int k;
  int block_rows;
  int block_columns;
};

}  // namespace vllm_volta

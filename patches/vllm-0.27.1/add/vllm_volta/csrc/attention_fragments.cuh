// Which keys, values, queries and sums a lane has when a warp multiplies pieces of the cache (attention.h): 32 keys by
// 64 dimensions, 16 bytes in each of eight parts of a lane. `part(i)` gives part i, from registers or from shared
// memory; `after(i)` is told when it was used for the last time.
//
// Logits are keys times queries: 32 keys are the rows of the tensor cores' sums and 8 queries their columns, so that
// the larger operand is the one that is read once. Results are values times exponentials, with dimensions for rows. The
// exponentials of a query go through shared memory, in an order of keys of their own: the one in which lanes have sums
// next to each other. A lane's sums i and i + 2 (i: 0, 1, 4, 5) are of the same query and of keys next to each other
// there: a pair.

#pragma once

#include "attention.h"
#if defined(__CUDACC__)
  #include "warp.cuh"
#else
  #include "host_warp.h"
#endif

namespace vllm_volta {

// mma.m8n8k4 of Volta: four quad pairs, each with 8 keys (or 8 dimensions) of its own and the same 8 queries.
struct QuadPairTiles {
  // Of 8 queries a lane has sums of so many, each for so many keys next to each other.
  static constexpr int COLUMNS = 4;
  static constexpr int KEYS = 2;
  // Lanes that have sums of the same queries differ in these bits of their numbers.
  static constexpr int SHARED_BITS = 4;
  __device__ static constexpr int shared_bit(int i) { return i == 0 ? 1 : 2 << i; }
  __device__ static bool is_first(int lane) { return (lane & 29) == 0; }

  __device__ static int row_in_eight(int lane) { return 4 * (lane / 16) + lane % 4; }
  __device__ static int first_key(int lane) {
    return 16 * (lane / 8 % 2) + 8 * (lane / 16) + 4 * (lane / 4 % 2) + 2 * (lane % 2);
  }

  // Part `part` of a piece of keys: dimensions 8 * key_dims to + 7 of key `key`.
  __device__ static int key(int lane, int) { return first_key(lane) + lane / 2 % 2; }
  __device__ static int key_dims(int, int part) { return part; }
  // Part `part` of a piece of values, likewise. Parts 0 to 3 are of the first 16 keys.
  __device__ static int value_key(int lane, int part) { return 4 * part + lane % 4; }
  __device__ static int value_dims(int lane) { return lane / 4 % 4 + 4 * (lane / 16); }

  // Where the queries of a lane begin, with `stride` pieces of 16 bytes between eight dimensions and the next eight.
  __device__ static int queries(int lane, int) { return row_in_eight(lane); }
  // Where the exponentials of a lane begin.
  __device__ static int exponentials(int lane) { return row_in_eight(lane) * EXPONENTIALS_STRIDE; }

  // The query of column `column`, the key of a sum of logits, the dimension of a sum of values of one of two tiles.
  __device__ static int query(int lane, int column) { return 2 * (column & 2) + (lane & 2) + (column & 1); }
  __device__ static constexpr int column(int i) { return (i & 1) + (i & 4) / 2; }
  __device__ static int sum_key(int lane, int i) { return first_key(lane) + i / 2 % 2; }
  __device__ static int sum_dim(int lane, int tile, int i) {
    return 8 * value_dims(lane) + 4 * tile + lane % 2 + (i & 2);
  }

  template <int TILES, class Part, class After>
  __device__ static void multiply_keys(const Part& part, const After& after, const uint4* queries, int stride,
                                       float (&sums)[TILES][8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint4 key = part(i);
      const unsigned int a[4] = {key.x, key.y, key.z, key.w};
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        const uint4 query = queries[i * stride + 8 * tile];
        const unsigned int b[4] = {query.x, query.y, query.z, query.w};
        multiply_m8n8k4(sums[tile], a, b);
        multiply_m8n8k4(sums[tile], a + 2, b + 2);
      }
      after(i);
    }
  }

  __device__ static void store_exponentials(int lane, const unsigned int (&pairs)[4], unsigned short* rows) {
#pragma unroll
    for (int column = 0; column < COLUMNS; ++column) {
      *reinterpret_cast<unsigned int*>(rows + query(lane, column) * EXPONENTIALS_STRIDE + first_key(lane)) =
          pairs[column];
    }
  }

  // sums[query tile][tile of dimensions]
  template <int TILES, class Part, class After>
  __device__ static void multiply_values(const Part& part, const After& after, const unsigned short* exponentials,
                                         float (&sums)[TILES][2][8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint4 value = part(i);
      const unsigned int a[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        const uint2 pairs = *reinterpret_cast<const uint2*>(exponentials + tile * 8 * EXPONENTIALS_STRIDE + 4 * i);
        const unsigned int b[2] = {pairs.x, pairs.y};
        multiply_m8n8k4_columns(sums[tile][0], a, b);
        multiply_m8n8k4_columns(sums[tile][1], a + 2, b);
      }
      after(i);
    }
  }
};

// wmma.m32n8k16 as it is from 8.0 on: two m16n8k16, eight groups of four lanes.
struct OctetTiles {
  static constexpr int COLUMNS = 2;
  static constexpr int KEYS = 4;
  static constexpr int SHARED_BITS = 3;
  __device__ static constexpr int shared_bit(int i) { return 4 << i; }
  __device__ static bool is_first(int lane) { return lane < 4; }

  __device__ static int key(int lane, int part) { return 16 * (lane / 16) + lane / 4 % 4 + 4 * (part % 4); }
  __device__ static int key_dims(int lane, int part) { return 4 * (part / 4) + lane % 4; }
  __device__ static int value_key(int lane, int part) { return 16 * (part / 4) + lane % 4 + 4 * (part % 4); }
  __device__ static int value_dims(int lane) { return lane / 4; }

  __device__ static int queries(int lane, int stride) { return lane % 4 * stride + lane / 4; }
  __device__ static int exponentials(int lane) { return lane / 4 * EXPONENTIALS_STRIDE + 4 * (lane % 4); }

  __device__ static int query(int lane, int column) { return 2 * (lane % 4) + column; }
  __device__ static constexpr int column(int i) { return i % 2; }
  __device__ static int sum_key(int lane, int i) { return key(lane, i / 2); }
  __device__ static int sum_dim(int lane, int tile, int i) { return 8 * (lane / 4) + 4 * tile + i / 2; }

  template <int TILES, class Part, class After>
  __device__ static void multiply_keys(const Part& part, const After& after, const uint4* queries, int stride,
                                       float (&sums)[TILES][8]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 keys[4] = {part(4 * half), part(4 * half + 1), part(4 * half + 2), part(4 * half + 3)};
      const unsigned int first[8] = {keys[0].x, keys[1].x, keys[0].y, keys[1].y,
                                     keys[2].x, keys[3].x, keys[2].y, keys[3].y};
      const unsigned int second[8] = {keys[0].z, keys[1].z, keys[0].w, keys[1].w,
                                      keys[2].z, keys[3].z, keys[2].w, keys[3].w};
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        const uint4 query = queries[4 * half * stride + 8 * tile];
        const unsigned int b[4] = {query.x, query.y, query.z, query.w};
        multiply_m32n8k16(sums[tile], first, b);
        multiply_m32n8k16(sums[tile], second, b + 2);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        after(4 * half + i);
      }
    }
  }

  __device__ static void store_exponentials(int lane, const unsigned int (&pairs)[4], unsigned short* rows) {
#pragma unroll
    for (int column = 0; column < COLUMNS; ++column) {
      *reinterpret_cast<uint2*>(rows + query(lane, column) * EXPONENTIALS_STRIDE + 4 * (lane / 4)) =
          make_uint2(pairs[column], pairs[column + 2]);
    }
  }

  template <int TILES, class Part, class After>
  __device__ static void multiply_values(const Part& part, const After& after, const unsigned short* exponentials,
                                         float (&sums)[TILES][2][8]) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint4 values[4] = {part(4 * step), part(4 * step + 1), part(4 * step + 2), part(4 * step + 3)};
      unsigned int first[8];
      unsigned int second[8];
      transpose(values[0].x, values[1].x, values[2].x, values[3].x, first);
      transpose(values[0].y, values[1].y, values[2].y, values[3].y, first + 4);
      transpose(values[0].z, values[1].z, values[2].z, values[3].z, second);
      transpose(values[0].w, values[1].w, values[2].w, values[3].w, second + 4);
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        const uint2 pairs = *reinterpret_cast<const uint2*>(exponentials + tile * 8 * EXPONENTIALS_STRIDE + 16 * step);
        const unsigned int b[2] = {pairs.x, pairs.y};
        multiply_m32n8k16(sums[tile][0], first, b);
        multiply_m32n8k16(sums[tile][1], second, b);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        after(4 * step + i);
      }
    }
  }

 private:
  // Two dimensions of four keys become four pairs of keys: of the first dimension, of the second, and so on.
  __device__ static void transpose(unsigned int key_0, unsigned int key_1, unsigned int key_2, unsigned int key_3,
                                   unsigned int* pairs) {
    pairs[0] = lower_halves(key_0, key_1);
    pairs[1] = upper_halves(key_0, key_1);
    pairs[2] = lower_halves(key_2, key_3);
    pairs[3] = upper_halves(key_2, key_3);
  }
};

}  // namespace vllm_volta

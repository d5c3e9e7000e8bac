// The functions of warp.cuh on the host.
//
// What the tensor core instructions compute follows the layouts of the PTX ISA ("Matrix fragments for mma.m8n8k4 with
// .f16 floating point type" and "for mma.m16n8k16"). In which order, and how, they add up is not specified: here one
// product after the other is added in fp32, in order of columns.

#pragma once

#include <cstring>

#include "thread_blocks.h"

namespace host_cuda {

// Products of the four quad pairs of a warp: sums [8, 8] += a [8, 4] b [4, 8] of each.
void multiply_quad_pairs(const Operands (&lanes)[WARP]);

// sums [32, 8] += a [32, 16] b [16, 8], as two instructions m16n8k16, one for each half of the rows.
void multiply_halves(const Operands (&lanes)[WARP]);

}  // namespace host_cuda

namespace vllm_volta {

inline uint4 load_streamed(const uint4* address) { return *address; }

inline unsigned int load_streamed(const unsigned int* address) { return *address; }

inline float4 load_shared_result(const float4* address) { return *address; }

inline __half2 halves_of(unsigned int word) {
  __half2 halves;
  std::memcpy(&halves, &word, sizeof(halves));
  return halves;
}

inline unsigned int word_of(__half2 halves) {
  unsigned int word;
  std::memcpy(&word, &halves, sizeof(word));
  return word;
}

inline unsigned int multiply_pairs(unsigned int left, unsigned int right) {
  const __half2 a = halves_of(left);
  const __half2 b = halves_of(right);
  // A product of two fp16 numbers is exact in fp32, so this rounds once.
  return word_of(__floats2half2_rn(__half2float(a.x) * __half2float(b.x), __half2float(a.y) * __half2float(b.y)));
}

inline unsigned int scaled_pair(unsigned int pair, float factor) {
  const float2 values = __half22float2(halves_of(pair));
  return word_of(__floats2half2_rn(values.x * factor, values.y * factor));
}

inline uint4 scaled_pairs(uint4 pairs, float factor) {
  return make_uint4(scaled_pair(pairs.x, factor), scaled_pair(pairs.y, factor), scaled_pair(pairs.z, factor),
                    scaled_pair(pairs.w, factor));
}

inline unsigned int lower_twice(unsigned int word) { return (word & 0xffffu) * 0x10001u; }

inline unsigned int upper_twice(unsigned int word) { return (word >> 16) * 0x10001u; }

inline unsigned int lower_bytes_as_halves(unsigned int word) { return (word & 0xffu) << 8 | (word & 0xff00u) << 16; }

inline unsigned int upper_bytes_as_halves(unsigned int word) { return lower_bytes_as_halves(word >> 16); }

inline void multiply_m8n8k4(float (&sums)[8], const unsigned int* a, const unsigned int* b) {
  host_cuda::meet_lanes(host_cuda::multiply_quad_pairs, {sums, a, b});
}

inline void multiply_m32n8k16(float (&sums)[8], const unsigned int* a, const unsigned int* b) {
  host_cuda::meet_lanes(host_cuda::multiply_halves, {sums, a, b});
}

}  // namespace vllm_volta

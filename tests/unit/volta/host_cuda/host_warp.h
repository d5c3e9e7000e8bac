// The functions of warp.cuh on the host.
//
// What the tensor core instructions compute follows the layouts of the PTX ISA ("Matrix fragments for mma.m8n8k4 with
// .f16 floating point type" and "for mma.m16n8k16"). In which order, and how, they add up is not specified: here one
// product after the other is added in fp32, in order of columns.

#pragma once

#include <cmath>
#include <cstring>

#include "thread_blocks.h"

namespace host_cuda {

// Products of the four quad pairs of a warp: sums [8, 8] += a [8, 4] b [4, 8] of each.
void multiply_quad_pairs(const Operands (&lanes)[WARP]);

// The same with a by columns.
void multiply_quad_pairs_columns(const Operands (&lanes)[WARP]);

// sums [32, 8] += a [32, 16] b [16, 8], as two instructions m16n8k16, one for each half of the rows.
void multiply_halves(const Operands (&lanes)[WARP]);

// Each lane's first sum, of whatever type it be, becomes that of lane a[0].
void exchange(const Operands (&lanes)[WARP]);

// The bits of each lane's first sum become the lanes whose a[0] is 1, the first lane in the lowest bit.
void vote(const Operands (&lanes)[WARP]);

template <class To, class From>
To same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "one word as another");
  To bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

template <class Value>
Value of_lane(Value value, unsigned int lane) {
  float word = same_bits<float>(value);
  meet_lanes(exchange, {&word, &lane, nullptr});
  return same_bits<Value>(word);
}

}  // namespace host_cuda

namespace vllm_volta {

inline uint4 load_streamed(const uint4* address) { return *address; }

inline unsigned int load_streamed(const unsigned int* address) { return *address; }

inline float4 load_shared_result(const float4* address) { return *address; }

inline float load_shared_result(const float* address) { return *address; }

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(host_cuda::dynamic_shared_memory());
}

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

inline float sum_of_halves(unsigned int pair) {
  const float2 numbers = __half22float2(halves_of(pair));
  return numbers.x + numbers.y;
}

inline unsigned int lower_halves(unsigned int a, unsigned int b) { return (a & 0xffffu) | b << 16; }

inline unsigned int upper_halves(unsigned int a, unsigned int b) { return a >> 16 | (b & 0xffff0000u); }

inline unsigned int lower_bytes_as_halves(unsigned int word) { return (word & 0xffu) << 8 | (word & 0xff00u) << 16; }

inline unsigned int upper_bytes_as_halves(unsigned int word) { return lower_bytes_as_halves(word >> 16); }

inline void multiply_m8n8k4(float (&sums)[8], const unsigned int* a, const unsigned int* b) {
  host_cuda::meet_lanes(host_cuda::multiply_quad_pairs, {sums, a, b});
}

inline void multiply_m8n8k4_columns(float (&sums)[8], const unsigned int* a, const unsigned int* b) {
  host_cuda::meet_lanes(host_cuda::multiply_quad_pairs_columns, {sums, a, b});
}

inline void multiply_m32n8k16(float (&sums)[8], const unsigned int* a, const unsigned int* b) {
  host_cuda::meet_lanes(host_cuda::multiply_halves, {sums, a, b});
}

inline void meet_warp() { __syncwarp(); }

inline unsigned int lanes_with(bool condition) {
  const unsigned int mine = condition ? 1 : 0;
  float lanes;
  host_cuda::meet_lanes(host_cuda::vote, {&lanes, &mine, nullptr});
  return host_cuda::same_bits<unsigned int>(lanes);
}

inline bool any_lane(bool condition) { return lanes_with(condition) != 0; }

inline float shuffle_xor(float value, int mask) {
  return host_cuda::of_lane(value, threadIdx.x % host_cuda::WARP ^ static_cast<unsigned int>(mask));
}

// The first lanes keep their own.
inline int shuffle_up(int value, int lanes) {
  const unsigned int lane = threadIdx.x % host_cuda::WARP;
  return host_cuda::of_lane(value, lane < static_cast<unsigned int>(lanes) ? lane : lane - lanes);
}

inline int shuffle_from(int value, int lane) { return host_cuda::of_lane(value, static_cast<unsigned int>(lane)); }

inline float power_of_two(float exponent) {
  const float power = exp2f(exponent);
  return power < 0x1p-126f ? 0 : power;
}

inline unsigned int halves_from(float first, float second) { return word_of(__floats2half2_rn(first, second)); }

}  // namespace vllm_volta

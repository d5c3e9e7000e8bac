// Small kernels, each with a fault that thread_blocks.h must find, and some without. Each thread has a word of its own
// in `words`.

#include "host_warp.h"

extern "C" {

// What the next thread wrote; right.
void neighbours_word(unsigned int* words) {
  __shared__ unsigned int all[host_cuda::MOST_THREADS];
  all[threadIdx.x] = 100 * threadIdx.x + blockIdx.x;
  __syncthreads();
  words[threadIdx.x] = all[(threadIdx.x + 1) % blockDim.x];
}

// The same without a barrier.
void neighbours_word_too_early(unsigned int* words) {
  __shared__ unsigned int all[host_cuda::MOST_THREADS];
  all[threadIdx.x] = 100 * threadIdx.x + blockIdx.x;
  words[threadIdx.x] = all[(threadIdx.x + 1) % blockDim.x];
}

// The same with a barrier for the warp only.
void neighbours_word_of_a_warp(unsigned int* words) {
  __shared__ unsigned int all[host_cuda::MOST_THREADS];
  all[threadIdx.x] = 100 * threadIdx.x + blockIdx.x;
  __syncwarp();
  words[threadIdx.x] = all[(threadIdx.x + 1) % blockDim.x];
}

void shared_word_that_nobody_wrote(unsigned int* words) {
  __shared__ unsigned int word;
  words[threadIdx.x] = word;
  word = threadIdx.x;
}

void writes_past_its_shared_memory(unsigned int* words) {
  __shared__ unsigned int all[7];
  all[threadIdx.x] = threadIdx.x;
  __syncthreads();
  words[threadIdx.x] = all[0];
}

void reads_past_the_end(unsigned int* words) {
  words[threadIdx.x] = words[blockDim.x];
}

void reads_before_the_begin(unsigned int* words) {
  words[threadIdx.x] = *(words - 1);
}

void writes_past_the_end(unsigned int* words) {
  words[blockDim.x] = threadIdx.x;
}

void reads_16_bytes_at_8(unsigned int* words) {
  words[threadIdx.x] = vllm_volta::load_streamed(reinterpret_cast<const uint4*>(words + 2)).x;
}

// What the last thread of the block wrote to dynamic shared memory; right.
void last_word_of_dynamic_memory(unsigned int* words) {
  unsigned int* all = vllm_volta::dynamic_shared<unsigned int>();
  all[threadIdx.x] = 1000 * threadIdx.x + 100 * blockIdx.x + 10 * blockIdx.y + blockIdx.z;
  __syncthreads();
  const unsigned int row = blockIdx.z * gridDim.y + blockIdx.y;
  words[(row * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] = all[blockDim.x - 1];
}

void dynamic_word_that_nobody_wrote(unsigned int* words) {
  words[threadIdx.x] = vllm_volta::dynamic_shared<unsigned int>()[threadIdx.x];
  vllm_volta::dynamic_shared<unsigned int>()[threadIdx.x] = 0;
}

void writes_past_its_dynamic_memory(unsigned int* words) {
  vllm_volta::dynamic_shared<unsigned int>()[threadIdx.x + 1] = words[threadIdx.x];
}

void writes_in_front_of_its_dynamic_memory(unsigned int* words) {
  *(vllm_volta::dynamic_shared<unsigned int>() - 1) = words[threadIdx.x];
}

void overflows(unsigned int* words) {
  int value = 0x7fffffff;
  value += static_cast<int>(threadIdx.x);
  words[threadIdx.x] = value;
}

void divides_by_zero(unsigned int* words) {
  words[threadIdx.x] = 1 / words[threadIdx.x];
}

void leaves_others_at_a_barrier(unsigned int* words) {
  words[threadIdx.x] = 0;
  if (threadIdx.x != 5) {
    __syncthreads();
  }
}

void diverges(unsigned int* words) {
  float sums[8] = {};
  const unsigned int fragment[8] = {};
  if (threadIdx.x % 2 == 0) {
    vllm_volta::multiply_m8n8k4(sums, fragment, fragment);
  } else {
    vllm_volta::multiply_m32n8k16(sums, fragment, fragment);
  }
  words[threadIdx.x] = static_cast<unsigned int>(sums[0]);
}

// Of each lane: the numbers of the lanes that it exchanges with by 16, 8, 4, 2 and 1, each in five bits.
void exchanges_numbers(unsigned int* words) {
  unsigned int found = 0;
  for (int mask = 16; mask > 0; mask /= 2) {
    found = found * 32 + static_cast<unsigned int>(vllm_volta::shuffle_xor(static_cast<float>(threadIdx.x % 32), mask));
  }
  words[threadIdx.x] = found;
}

// Of each lane: the number of the thread three lanes before.
void numbers_move_up(unsigned int* words) {
  words[threadIdx.x] = vllm_volta::shuffle_up(static_cast<int>(threadIdx.x), 3);
}

// Of each lane: the number, less 100, of the lane whose number is its own times 5.
void numbers_of_other_lanes(unsigned int* words) {
  const int number = threadIdx.x;
  words[threadIdx.x] = vllm_volta::shuffle_from(number - 100, 5 * number % 32) + 100;
}

// The lanes of the warp with numbers that 3 divides, and in the lowest bit whether the warp has thread 33.
void votes(unsigned int* words) {
  const unsigned int lanes = vllm_volta::lanes_with(threadIdx.x % 3 == 0);
  words[threadIdx.x] = (lanes & ~1u) | (vllm_volta::any_lane(threadIdx.x == 33) ? 1 : 0);
}

void exchanges_where_others_vote(unsigned int* words) {
  words[threadIdx.x] = threadIdx.x == 40 ? vllm_volta::any_lane(true) : vllm_volta::shuffle_xor(1, 1) != 0;
}

// Tensor cores, one warp: the sums of all lanes, eight each, then their words of a, two each, then of b, two each.
void multiplies_by_rows(unsigned int* words) {
  float(&sums)[8] = *reinterpret_cast<float(*)[8]>(words + 8 * threadIdx.x);
  vllm_volta::multiply_m8n8k4(sums, words + 32 * 8 + 2 * threadIdx.x, words + 32 * 10 + 2 * threadIdx.x);
}

void multiplies_by_columns(unsigned int* words) {
  float(&sums)[8] = *reinterpret_cast<float(*)[8]>(words + 8 * threadIdx.x);
  vllm_volta::multiply_m8n8k4_columns(sums, words + 32 * 8 + 2 * threadIdx.x, words + 32 * 10 + 2 * threadIdx.x);
}

unsigned int lower_halves_of(unsigned int a, unsigned int b) { return vllm_volta::lower_halves(a, b); }

unsigned int upper_halves_of(unsigned int a, unsigned int b) { return vllm_volta::upper_halves(a, b); }

unsigned int halves_of_floats(float first, float second) { return vllm_volta::halves_from(first, second); }

}  // extern "C"

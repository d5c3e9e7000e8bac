// Small kernels, each with a fault that thread_blocks.h must find, and one without. Each thread has a word of its own
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

}  // extern "C"

// New keys and values go to their places in the cache (attention.h).

#pragma once

#include <cuda_fp16.h>

#include "attention.h"

namespace vllm_volta {

// A piece: eight dimensions of the key and of the value of one token and KV head.
extern "C" __global__ void write_cache(const CacheWrite work) {
  const int dims_of_head = work.head_size / 8;
  const long long pieces = static_cast<long long>(work.tokens) * work.kv_heads * dims_of_head;
  for (long long piece = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; piece < pieces;
       piece += static_cast<long long>(gridDim.x) * blockDim.x) {
    const long long vector = piece / dims_of_head;
    const int dims = static_cast<int>(piece - vector * dims_of_head);
    const int token = static_cast<int>(vector / work.kv_heads);
    const int head = static_cast<int>(vector - static_cast<long long>(token) * work.kv_heads);
    const long long slot = work.slots[token];
    if (slot < 0) {
      continue;
    }
    const long long block = slot / work.block_size;
    const int place = static_cast<int>(slot - block * work.block_size);
    const int in_group = place % CACHE_GROUP;
    const long long offset = static_cast<long long>(head) * work.head_size + 8 * dims;
    __half* const group = static_cast<__half*>(work.cache) + block * work.block_stride + head * work.head_stride +
                          static_cast<long long>(place / CACHE_GROUP) * (CACHE_GROUP * 2 * work.head_size);
    reinterpret_cast<uint4*>(group)[dims * CACHE_GROUP + in_group] =
        *reinterpret_cast<const uint4*>(static_cast<const __half*>(work.key) + token * work.key_stride + offset);
    reinterpret_cast<uint4*>(group + (CACHE_GROUP + in_group) * work.head_size)[dims] =
        *reinterpret_cast<const uint4*>(static_cast<const __half*>(work.value) + token * work.value_stride + offset);
  }
}

}  // namespace vllm_volta

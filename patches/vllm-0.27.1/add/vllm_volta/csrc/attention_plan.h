// How attention (attention.h) is given to its kernels, and what they need of memory. Plain C++ without headers: the
// same inputs give the same plan on every machine, in tests without a GPU too.

#pragma once

#include "attention.h"
#include "panel_plan.h"

namespace vllm_volta {

constexpr int ATTENTION_SIZES = sizeof(HEAD_SIZES) / sizeof(HEAD_SIZES[0]);

// The place of a head size in HEAD_SIZES, ATTENTION_SIZES where no kernel takes it.
constexpr int attention_number(int head_size) {
  int number = 0;
  while (number < ATTENTION_SIZES && HEAD_SIZES[number] != head_size) {
    ++number;
  }
  return number;
}

// Kernels of split attention, by number: tiles of 8 and of 16 rows for each head size, 16 rows not for the last.
constexpr int SPLIT_KERNELS = 2 * ATTENTION_SIZES - 1;
constexpr int split_head_size(int kernel) { return HEAD_SIZES[kernel / 2]; }
constexpr int split_rows(int kernel) { return kernel % 2 == 0 ? 8 : 16; }

// The kernel for a head size of HEAD_SIZES and requests of at most so many query tokens.
constexpr int split_kernel(int head_size, int group, int most_queries) {
  const int number = attention_number(head_size);
  const bool many = static_cast<long long>(most_queries) * group > 8 && number < ATTENTION_SIZES - 1;
  return 2 * number + (many ? 1 : 0);
}

// As many thread blocks as run at once, as long as all of them may work.
constexpr int split_blocks(int multiprocessors, int resident) {
  const long long blocks = static_cast<long long>(multiprocessors) * resident;
  return blocks < MOST_SPLIT_BLOCKS ? static_cast<int>(blocks) : MOST_SPLIT_BLOCKS;
}

// Memory that attention works in.
struct AttentionWorkspace {
  long long partial;   // floats of PagedAttention::partial
  long long arrivals;  // counters of PagedAttention::arrivals
};

constexpr AttentionWorkspace larger(const AttentionWorkspace& left, const AttentionWorkspace& right) {
  return {left.partial > right.partial ? left.partial : right.partial,
          left.arrivals > right.arrivals ? left.arrivals : right.arrivals};
}

// How split attention is started.
struct SplitPlan {
  int kernel;  // by its number
  int blocks;

  // What it needs for query tokens and requests of a batch.
  constexpr AttentionWorkspace workspace(int tokens, int requests, int kv_heads, int group) const {
    return {partial_floats(blocks, split_rows(kernel), padded_head_size(split_head_size(kernel))),
            arrival_counters(tokens, requests, kv_heads, group, split_rows(kernel))};
  }
};

// How tiled attention is started: blocks for each KV head, and how many of them share the keys of the same rows.
struct TiledPlan {
  int blocks;
  int parts;

  constexpr AttentionWorkspace workspace(int kv_heads, int head_size) const {
    const int sharing = parts > 1 ? blocks * kv_heads : 0;
    return {tiled_partial_floats(sharing * parts, head_size), sharing};
  }
};

// tokens: query tokens of the requests, at least.
constexpr TiledPlan plan_tiled(int tokens, int requests, int kv_heads, int group, int head_size, int multiprocessors) {
  const long long blocks = tiled_blocks(tokens, requests, group, head_size);
  return {static_cast<int>(blocks), tiled_parts(blocks * kv_heads, multiprocessors)};
}

// New keys and values are written in pieces: eight dimensions of the key and the value of one token and head.
constexpr int WRITE_THREADS = 256;
constexpr long long cache_pieces(const CacheWrite& work) {
  return static_cast<long long>(work.tokens) * work.kv_heads * (work.head_size / 8);
}

}  // namespace vllm_volta

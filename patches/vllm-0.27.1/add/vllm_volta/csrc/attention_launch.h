// Starts the kernels for attention (attention.h). Loading, threads, CUDA graphs and errors are as launch.h has them.

#pragma once

#include "attention_plan.h"
#include "panels.h"

namespace vllm_volta {

// How split attention is started for requests of at most `most_queries` query tokens.
SplitPlan plan_split_attention(int device, Fragments fragments, int head_size, int group, int most_queries);

// What attention needs at most if split attention gets up to `tokens` query tokens of `requests` requests, whatever
// kernel takes them.
AttentionWorkspace most_workspace(int device, Fragments fragments, int head_size, int kv_heads, int group, int tokens,
                                  int requests);

void launch_split_attention(int device, Fragments fragments, const SplitPlan& plan, const PagedAttention& work,
                            void* stream);

// tokens: query tokens of the requests, at least.
TiledPlan plan_tiled_attention(int device, int tokens, int requests, int kv_heads, int group, int head_size);

void launch_tiled_attention(int device, Fragments fragments, const TiledPlan& plan, const PagedAttention& work,
                            void* stream);

void launch_write_cache(int device, const CacheWrite& work, void* stream);

}  // namespace vllm_volta

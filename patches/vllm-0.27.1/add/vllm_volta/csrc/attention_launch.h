// Starts the kernels for attention (attention.h). Loading, threads, CUDA graphs and errors are as launch.h has them.

#pragma once

#include "attention_plan.h"
#include "panels.h"

namespace vllm_volta {

// How split attention is started for requests of at most `most_queries` query tokens.
SplitPlan plan_split_attention(int device, Fragments fragments, int head_size, int group, int most_queries);

// What split attention needs at most for `tokens` query tokens of `requests` requests, whatever kernel takes them.
AttentionWorkspace most_workspace(int device, Fragments fragments, int head_size, int kv_heads, int group, int tokens,
                                  int requests);

void launch_split_attention(int device, Fragments fragments, const SplitPlan& plan, const PagedAttention& work,
                            void* stream);

// tokens: query tokens of the requests in `work`, at least.
void launch_tiled_attention(int device, Fragments fragments, int tokens, const PagedAttention& work, void* stream);

void launch_write_cache(int device, const CacheWrite& work, void* stream);

}  // namespace vllm_volta

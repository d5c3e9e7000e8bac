#include "attention_launch.h"

#include "kernels.h"

namespace vllm_volta {

namespace {

void start_attention(Device& device, int kernel, Grid grid, const PagedAttention& work, void* stream) {
  void* parameters[] = {const_cast<PagedAttention*>(&work)};
  start(device, kernel, grid, parameters,
        {{"requests", work.requests},
         {"kv_heads", work.kv_heads},
         {"group", work.group},
         {"head_size", work.head_size},
         {"block_size", work.block_size}},
        stream);
}

SplitPlan plan_of(Device& device, Fragments fragments, int kernel) {
  const int resident = resident_blocks(device, split_number(fragments, kernel));
  return {kernel, split_blocks(multiprocessors_of(device), resident)};
}

}  // namespace

SplitPlan plan_split_attention(int device, Fragments fragments, int head_size, int group, int most_queries) {
  Device& found = device_of(device);
  check_fragments(fragments, found);
  return plan_of(found, fragments, split_kernel(head_size, group, most_queries));
}

AttentionWorkspace most_workspace(int device, Fragments fragments, int head_size, int kv_heads, int group, int tokens,
                                  int requests) {
  Device& found = device_of(device);
  check_fragments(fragments, found);
  // As many blocks share rows as there are multiprocessors, at the most.
  const int multiprocessors = multiprocessors_of(found);
  AttentionWorkspace most{tiled_partial_floats(multiprocessors, head_size), multiprocessors};
  for (const int queries : {1, tokens}) {
    const SplitPlan plan = plan_of(found, fragments, split_kernel(head_size, group, queries));
    most = larger(most, plan.workspace(tokens, requests, kv_heads, group));
  }
  return most;
}

void launch_split_attention(int device, Fragments fragments, const SplitPlan& plan, const PagedAttention& work,
                            void* stream) {
  Device& found = device_of(device);
  check_fragments(fragments, found);
  start_attention(found, split_number(fragments, plan.kernel), {plan.blocks}, work, stream);
}

TiledPlan plan_tiled_attention(int device, int tokens, int requests, int kv_heads, int group, int head_size) {
  return plan_tiled(tokens, requests, kv_heads, group, head_size, multiprocessors_of(device_of(device)));
}

void launch_tiled_attention(int device, Fragments fragments, const TiledPlan& plan, const PagedAttention& work,
                            void* stream) {
  Device& found = device_of(device);
  check_fragments(fragments, found);
  start_attention(found, tiled_number(fragments, work.head_size), {plan.blocks, work.kv_heads, plan.parts}, work,
                  stream);
}

void launch_write_cache(int device, const CacheWrite& work, void* stream) {
  Device& found = device_of(device);
  void* parameters[] = {const_cast<CacheWrite*>(&work)};
  start(found, WRITE_CACHE, {striding_blocks(found, cache_pieces(work), WRITE_THREADS)}, parameters,
        {{"tokens", work.tokens}, {"kv_heads", work.kv_heads}, {"head_size", work.head_size}}, stream);
}

}  // namespace vllm_volta

// The launcher of vllm_volta for a test: one call that plans and starts a kernel, with its error as text.

#include "attention_launch.h"
#include "launch.h"

#include <exception>
#include <string>

using namespace vllm_volta;

namespace {

// What the last call of a thread raised.
thread_local std::string error;

template <class Call>
const char* text_of_error(const Call& call) {
  error.clear();
  try {
    call();
  } catch (const std::exception& raised) {
    error = raised.what();
  }
  return error.c_str();
}

PagedAttention work_of(const int* shape) {
  PagedAttention work{};
  work.head_size = shape[0];
  work.kv_heads = shape[1];
  work.group = shape[2];
  work.requests = shape[3];
  work.block_size = 16;
  return work;
}

}  // namespace

extern "C" {

// out: tokens that the kernel takes, warps of a thread block, blocks, values of partial sums.
void plan(int m, int n, int k, int multiprocessors, int resident, int* out) {
  const PanelPlan made = plan_panels(m, n, k, multiprocessors, resident);
  out[0] = panel_tokens(made.kernel);
  out[1] = PANEL_WARPS;
  out[2] = made.blocks;
  out[3] = static_cast<int>(made.partial_values());
}

const char* start_matmul(int device, int format, int fragments, int m, int n, int k) {
  return text_of_error([=] {
    const auto kind = static_cast<Format>(format);
    const auto layout = static_cast<Fragments>(fragments);
    const PanelPlan made = plan_panel_matmul(device, kind, layout, m, n, k);
    PanelMatmul work{};
    work.m = m;
    work.n = n;
    work.k = k;
    launch_panel_matmul(device, kind, layout, made, work, reinterpret_cast<void*>(7));
  });
}

const char* start_dequantize(int device, int format, int fragments, int first, int last, int k) {
  return text_of_error([=] {
    PanelDequantize work{};
    work.first = first;
    work.last = last;
    work.k = k;
    launch_panel_dequantize(device, static_cast<Format>(format), static_cast<Fragments>(fragments), work, nullptr);
  });
}

const char* start_rows(int device, int columns) {
  return text_of_error([=] {
    launch_dequantize_fp8(device, nullptr, nullptr, nullptr, 64, columns, 64, 64, nullptr);
    launch_dequantize_nvfp4(device, nullptr, nullptr, nullptr, nullptr, 5, nullptr);
  });
}

// shape: head size, KV heads, query heads of each, requests.
const char* start_split(int device, int fragments, const int* shape, int most_queries) {
  return text_of_error([=] {
    const auto layout = static_cast<Fragments>(fragments);
    const SplitPlan made = plan_split_attention(device, layout, shape[0], shape[2], most_queries);
    launch_split_attention(device, layout, made, work_of(shape), reinterpret_cast<void*>(7));
  });
}

const char* start_tiled(int device, int fragments, const int* shape, int tokens) {
  return text_of_error([=] {
    const TiledPlan made = plan_tiled_attention(device, tokens, shape[3], shape[1], shape[2], shape[0]);
    launch_tiled_attention(device, static_cast<Fragments>(fragments), made, work_of(shape), nullptr);
  });
}

const char* start_write(int device, int tokens, int kv_heads, int head_size) {
  return text_of_error([=] {
    CacheWrite work{};
    work.tokens = tokens;
    work.kv_heads = kv_heads;
    work.head_size = head_size;
    launch_write_cache(device, work, nullptr);
  });
}

// out: the most floats and counters, then those of the plan for each of 1 to `most_queries` queries of a request.
const char* ask_workspace(int device, int fragments, const int* shape, int tokens, int most_queries, long long* out) {
  return text_of_error([=] {
    const auto layout = static_cast<Fragments>(fragments);
    const AttentionWorkspace most =
        most_workspace(device, layout, shape[0], shape[1], shape[2], tokens, shape[3]);
    out[0] = most.partial;
    out[1] = most.arrivals;
    for (int queries = 1; queries <= most_queries; ++queries) {
      const SplitPlan made = plan_split_attention(device, layout, shape[0], shape[2], queries);
      const AttentionWorkspace needed = made.workspace(tokens, shape[3], shape[1], shape[2]);
      out[2 * queries] = needed.partial;
      out[2 * queries + 1] = needed.arrivals;
    }
  });
}

const char* ask_fragments(int device, int* out) {
  return text_of_error([=] { *out = fragments_of(device); });
}
}

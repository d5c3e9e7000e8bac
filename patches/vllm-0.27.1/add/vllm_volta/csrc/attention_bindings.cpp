// The operators of torch.ops.vllm_volta for attention with a paged KV cache (attention.h).

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>

#include "attention.h"
#include "attention_launch.h"
#include "attention_plan.h"
#include "tensors.h"

namespace vllm_volta {

namespace {

// Blocks of a grid in its second dimension (CUDA C++ Programming Guide, "Technical Specifications").
constexpr int64_t MOST_KV_HEADS = 65535;
// A piece of 16 bytes, as the kernels read and write them.
constexpr int64_t PIECE = 8;

// The sizes of a cache, fp16 [blocks, kv_heads, block_size, 2 * head_size].
struct Cache {
  int64_t kv_heads;
  int64_t block_size;
  int64_t head_size;
};

std::string head_sizes() {
  std::string text;
  for (const int size : HEAD_SIZES) {
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return text;
}

int whole(int64_t value, const char* name, int64_t least = 0) {
  STD_TORCH_CHECK(value >= least && value <= MOST, name, " must be between ", least, " and ", MOST, ", it is ", value);
  return static_cast<int>(value);
}

void check_head_size(int64_t head_size) {
  bool known = false;
  for (const int size : HEAD_SIZES) {
    known = known || size == head_size;
  }
  STD_TORCH_CHECK(known, "there are kernels for the head sizes ", head_sizes(), ", none for ", head_size);
}

// Where a tensor has a stride at all: torch gives a dimension of size 1 any.
bool starts_pieces(const Tensor& tensor, int64_t dimension) {
  return tensor.size(dimension) <= 1 || tensor.stride(dimension) % PIECE == 0;
}

Cache cache_of(const Tensor& cache, const Place& place) {
  check_place(cache, "cache", place);
  check_type(cache, "cache", ScalarType::Half);
  STD_TORCH_CHECK(cache.dim() == 4, "cache must be [blocks, kv_heads, block_size, 2 * head_size], it is ",
                  shape_of(cache));
  const Cache sizes{cache.size(1), cache.size(2), cache.size(3) / 2};
  STD_TORCH_CHECK(sizes.kv_heads >= 1 && sizes.kv_heads <= MOST_KV_HEADS, "cache must have between 1 and ",
                  MOST_KV_HEADS, " KV heads, it is ", shape_of(cache));
  STD_TORCH_CHECK(sizes.block_size >= CACHE_GROUP && sizes.block_size <= MOST && sizes.block_size % CACHE_GROUP == 0,
                  "cache must have blocks of a multiple of ", CACHE_GROUP, " tokens, it is ", shape_of(cache));
  STD_TORCH_CHECK(cache.size(3) % 2 == 0, "a token of cache must be a key and a value, it is ", shape_of(cache));
  check_head_size(sizes.head_size);
  STD_TORCH_CHECK(cache.stride(3) == 1 && cache.stride(2) == cache.size(3),
                  "the last two dimensions of cache must be contiguous, its strides are ", strides_of(cache));
  STD_TORCH_CHECK(starts_pieces(cache, 0) && starts_pieces(cache, 1),
                  "blocks and KV heads of cache must start a "
                  "multiple of ",
                  PIECE, " values apart, its strides are ", strides_of(cache));
  check_aligned(cache.const_data_ptr(), "cache");
  return sizes;
}

// fp16 [at least `tokens`, heads, head_size], the heads of a token one after the other.
void check_heads(const Tensor& tensor, const char* name, const Place& place, int64_t tokens, int64_t heads,
                 int64_t head_size) {
  check_place(tensor, name, place);
  check_type(tensor, name, ScalarType::Half);
  STD_TORCH_CHECK(
      tensor.dim() == 3 && tensor.size(0) >= tokens && tensor.size(1) == heads && tensor.size(2) == head_size, name,
      " must be [at least ", tokens, ", ", heads, ", ", head_size, "], it is ", shape_of(tensor));
  STD_TORCH_CHECK(tensor.stride(2) == 1 && (heads == 1 || tensor.stride(1) == head_size) && starts_pieces(tensor, 0),
                  "the heads of a token of ", name, " must be contiguous, and tokens start a multiple of ", PIECE,
                  " values apart: its strides are ", strides_of(tensor));
  check_aligned(tensor.const_data_ptr(), name);
}

const float* float_of_each_head(const std::optional<Tensor>& values, const char* name, const Place& place,
                                int64_t heads) {
  return values.has_value() ? static_cast<const float*>(data_of(*values, name, ScalarType::Float, place, {heads}))
                            : nullptr;
}

// One dimension that holds at least so many values, zero or more.
void* workspace_of(const Tensor& tensor, const char* name, ScalarType type, const Place& place, int64_t values) {
  check_plain(tensor, name, place);
  check_type(tensor, name, type);
  STD_TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) >= values, name, " must be [at least ", values, "], it is ",
                  shape_of(tensor));
  return tensor.mutable_data_ptr();
}

// What all requests of a batch share; `requests` and all that is theirs is that of the whole batch.
PagedAttention describe(const Tensor& query, const Tensor& cache, const Tensor& out, const Tensor& query_start,
                        const Tensor& lengths, const Tensor& block_table, const std::optional<Tensor>& sinks,
                        const std::optional<Tensor>& slopes, const std::optional<Tensor>& ranges, int64_t tokens) {
  const Place place{query.get_device_index(), "query"};
  STD_TORCH_CHECK(query.dim() == 3, "query must be [tokens, heads, head_size], it is ", shape_of(query));
  const Cache sizes = cache_of(cache, place);
  const int64_t heads = query.size(1);
  check_heads(query, "query", place, tokens, heads, sizes.head_size);
  check_heads(out, "out", place, tokens, heads, sizes.head_size);
  STD_TORCH_CHECK(heads >= 1 && heads % sizes.kv_heads == 0, "each of the ", sizes.kv_heads,
                  " KV heads must have as many heads of query, which are ", heads);
  STD_TORCH_CHECK(tokens * heads <= MOST, "query must have at most ", MOST, " heads in all, it is ", shape_of(query));

  STD_TORCH_CHECK(lengths.dim() == 1, "lengths must be [requests], it is ", shape_of(lengths));
  const int64_t requests = lengths.size(0);
  check_place(block_table, "block_table", place);
  check_type(block_table, "block_table", ScalarType::Int);
  STD_TORCH_CHECK(block_table.dim() == 2 && block_table.size(0) == requests, "block_table must be [", requests,
                  ", most blocks of a request], it is ", shape_of(block_table));
  const int64_t most_blocks = block_table.size(1);
  STD_TORCH_CHECK((most_blocks <= 1 || block_table.stride(1) == 1) && block_table.stride(0) <= MOST,
                  "rows of block_table must be contiguous and start at most ", MOST, " values apart, its strides are ",
                  strides_of(block_table));
  STD_TORCH_CHECK(most_blocks <= MOST / sizes.block_size, "a request must have at most ", MOST, " tokens, ",
                  most_blocks, " blocks of ", sizes.block_size, " have more");

  PagedAttention work{};
  work.query = query.const_data_ptr();
  work.out = out.mutable_data_ptr();
  work.cache = cache.const_data_ptr();
  work.block_table = static_cast<const int*>(block_table.const_data_ptr());
  work.query_start =
      static_cast<const int*>(data_of(query_start, "query_start", ScalarType::Int, place, {requests + 1}));
  work.lengths = static_cast<const int*>(data_of(lengths, "lengths", ScalarType::Int, place, {requests}));
  work.sinks = float_of_each_head(sinks, "sinks", place, heads);
  work.slopes = float_of_each_head(slopes, "slopes", place, heads);
  if (ranges.has_value()) {
    STD_TORCH_CHECK(ranges->dim() == 3, "ranges must be [requests, ranges, 2], it is ", shape_of(*ranges));
    work.most_ranges = whole(ranges->size(1), "ranges of a request");
    work.ranges =
        static_cast<const int*>(data_of(*ranges, "ranges", ScalarType::Int, place, {requests, ranges->size(1), 2}));
  }
  work.query_stride = query.stride(0);
  work.out_stride = out.stride(0);
  work.block_stride = cache.stride(0);
  work.head_stride = cache.stride(1);
  work.block_table_stride = static_cast<int>(block_table.stride(0));
  work.requests = whole(requests, "requests");
  work.kv_heads = static_cast<int>(sizes.kv_heads);
  work.group = static_cast<int>(heads / sizes.kv_heads);
  work.head_size = static_cast<int>(sizes.head_size);
  work.block_size = static_cast<int>(sizes.block_size);
  return work;
}

// The requests of a batch from number `first` on.
PagedAttention rest_of(PagedAttention work, int first) {
  work.block_table += static_cast<int64_t>(first) * work.block_table_stride;
  work.query_start += first;
  work.lengths += first;
  if (work.ranges != nullptr) {
    work.ranges += 2ll * first * work.most_ranges;
  }
  work.requests -= first;
  return work;
}

void give_workspace(PagedAttention& work, const Tensor& partial, const Tensor& arrivals,
                    const AttentionWorkspace& needed, int32_t device) {
  const Place place{device, "query"};
  work.partial = static_cast<float*>(workspace_of(partial, "partial", ScalarType::Float, place, needed.partial));
  check_aligned(work.partial, "partial");
  work.arrivals =
      static_cast<unsigned int*>(workspace_of(arrivals, "arrivals", ScalarType::Int, place, needed.arrivals));
}

}  // namespace

void write_cache(const Tensor& key, const Tensor& value, const Tensor& cache, const Tensor& slots) {
  const Place place{cache.get_device_index(), "cache"};
  const Cache sizes = cache_of(cache, place);
  STD_TORCH_CHECK(slots.dim() == 1, "slots must be [tokens], it is ", shape_of(slots));
  const int64_t tokens = slots.size(0);
  check_heads(key, "key", place, tokens, sizes.kv_heads, sizes.head_size);
  check_heads(value, "value", place, tokens, sizes.kv_heads, sizes.head_size);
  CacheWrite work{};
  work.tokens = whole(tokens, "tokens");
  work.slots = static_cast<const long long*>(data_of(slots, "slots", ScalarType::Long, place, {tokens}));
  if (tokens == 0) {
    return;
  }
  work.key = key.const_data_ptr();
  work.value = value.const_data_ptr();
  work.cache = cache.mutable_data_ptr();
  work.key_stride = key.stride(0);
  work.value_stride = value.stride(0);
  work.block_stride = cache.stride(0);
  work.head_stride = cache.stride(1);
  work.kv_heads = static_cast<int>(sizes.kv_heads);
  work.head_size = static_cast<int>(sizes.head_size);
  work.block_size = static_cast<int>(sizes.block_size);
  const torch::stable::accelerator::DeviceGuard guard(place.device);
  launch_write_cache(place.device, work, current_stream(place.device));
}

void paged_attention(const Tensor& query, const Tensor& cache, const Tensor& out, const Tensor& query_start,
                     const Tensor& lengths, const Tensor& block_table, const Tensor& partial, const Tensor& arrivals,
                     const std::optional<Tensor>& sinks, const std::optional<Tensor>& slopes,
                     const std::optional<Tensor>& ranges, int64_t decodes, int64_t decode_tokens,
                     int64_t most_decode_queries, int64_t tokens, double scale, double soft_cap, int64_t window,
                     bool clamp_ranges, int64_t fragments) {
  const Fragments layout = fragments_of_number(fragments);
  const int all_tokens = whole(tokens, "tokens");
  PagedAttention work = describe(query, cache, out, query_start, lengths, block_table, sinks, slopes, ranges, tokens);
  STD_TORCH_CHECK(std::isfinite(scale) && std::isfinite(soft_cap) && soft_cap >= 0,
                  "scale must be finite and soft_cap 0 or more, they are ", scale, " and ", soft_cap);
  work.scale = static_cast<float>(scale);
  work.soft_cap = static_cast<float>(soft_cap);
  work.window = whole(window, "window");
  work.clamp_ranges = clamp_ranges ? 1 : 0;
  STD_TORCH_CHECK(decodes >= 0 && decodes <= work.requests, "decodes must be between 0 and ", work.requests,
                  " requests, they are ", decodes);
  STD_TORCH_CHECK(decode_tokens >= 0 && decode_tokens <= tokens && (decodes > 0 || decode_tokens == 0) &&
                      (decodes < work.requests || decode_tokens == tokens),
                  "decode_tokens must be those of ", decodes, " of ", work.requests, " requests with ", tokens,
                  " tokens, they are ", decode_tokens);
  if (tokens == 0) {
    return;
  }
  const int first = static_cast<int>(decodes);
  const int few = static_cast<int>(decode_tokens);
  const int32_t device = query.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  void* stream = current_stream(device);
  if (few > 0) {
    const SplitPlan plan = plan_split_attention(device, layout, work.head_size, work.group,
                                                whole(most_decode_queries, "most_decode_queries", 1));
    PagedAttention decoding = work;
    decoding.requests = first;
    give_workspace(decoding, partial, arrivals, plan.workspace(few, first, work.kv_heads, work.group), device);
    launch_split_attention(device, layout, plan, decoding, stream);
  }
  if (few < all_tokens) {
    PagedAttention rest = rest_of(work, first);
    const TiledPlan plan =
        plan_tiled_attention(device, all_tokens - few, rest.requests, rest.kv_heads, rest.group, rest.head_size);
    give_workspace(rest, partial, arrivals, plan.workspace(rest.kv_heads, rest.head_size), device);
    launch_tiled_attention(device, layout, plan, rest, stream);
  }
}

std::tuple<int64_t, int64_t> attention_workspace(const Tensor& like, int64_t kv_heads, int64_t group, int64_t head_size,
                                                 int64_t most_requests, int64_t most_decode_tokens, int64_t fragments) {
  const Fragments layout = fragments_of_number(fragments);
  STD_TORCH_CHECK(kv_heads >= 1 && kv_heads <= MOST_KV_HEADS, "kv_heads must be between 1 and ", MOST_KV_HEADS,
                  ", it is ", kv_heads);
  check_head_size(head_size);
  const int requests = whole(most_requests, "most_requests", 1);
  const int tokens = whole(most_decode_tokens, "most_decode_tokens", 1);
  const int heads = whole(group, "group", 1);
  STD_TORCH_CHECK(most_decode_tokens * group <= MOST / kv_heads, "most_decode_tokens must have at most ", MOST,
                  " heads of query in all, they are ", most_decode_tokens, " with ", kv_heads * group);
  const int32_t device = like.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const AttentionWorkspace most =
      most_workspace(device, layout, static_cast<int>(head_size), static_cast<int>(kv_heads), heads, tokens, requests);
  return {most.partial, most.arrivals};
}

}  // namespace vllm_volta

STABLE_TORCH_LIBRARY_FRAGMENT(vllm_volta, ops) {
  ops.def("write_cache(Tensor key, Tensor value, Tensor(a!) cache, Tensor slots) -> ()");
  ops.def(
      "paged_attention(Tensor query, Tensor cache, Tensor(a!) out, Tensor query_start, Tensor lengths, "
      "Tensor block_table, Tensor(b!) partial, Tensor(c!) arrivals, Tensor? sinks, Tensor? slopes, Tensor? ranges, "
      "int decodes, int decode_tokens, int most_decode_queries, int tokens, float scale, float soft_cap, int window, "
      "bool clamp_ranges, int fragments) -> ()");
  ops.def(
      "attention_workspace(Tensor like, int kv_heads, int group, int head_size, int most_requests, "
      "int most_decode_tokens, int fragments) -> (int, int)");
}

STABLE_TORCH_LIBRARY_IMPL(vllm_volta, CUDA, ops) {
  ops.impl("write_cache", TORCH_BOX(&vllm_volta::write_cache));
  ops.impl("paged_attention", TORCH_BOX(&vllm_volta::paged_attention));
  ops.impl("attention_workspace", TORCH_BOX(&vllm_volta::attention_workspace));
}

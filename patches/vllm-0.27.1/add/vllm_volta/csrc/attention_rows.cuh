// What both kernels for attention need of a request: where its keys are, which of them a row sees, and softmax over
// keys that come 32 at a time.

#pragma once

#include "attention_fragments.cuh"

namespace vllm_volta {

constexpr float LOG2_E = 1.4426950408889634f;
// Below every logit, and still a number: 2^(LOWEST - LOWEST) is one.
constexpr float LOWEST = -1e30f;
// The largest exponent that is let through before exponentials get another reference: they stay below 256, far from
// fp16's largest number, with the same relative error as below 1.
constexpr float SLACK = 8;

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ int rounded_up(int value, int unit) { return (value + unit - 1) / unit; }

// Sums of `value` over the lanes of a warp up to this one.
__device__ __forceinline__ int running_sum(int lane, int value) {
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int before = shuffle_up(value, lanes);
    value += lane >= lanes ? before : 0;
  }
  return value;
}

// Tokens of one request, and how many of them are in the cache. The last `tokens` of these are this step's.
struct Request {
  int first_token;
  int tokens;
  int length;

  Request() = default;
  __device__ Request(const PagedAttention& work, int request)
      : first_token(work.query_start[request]),
        tokens(work.query_start[request + 1] - first_token),
        length(work.lengths[request]) {}

  __device__ bool is_empty() const { return tokens <= 0 || length <= 0; }
  __device__ int context() const { return length - tokens; }
};

// Keys from `visible` to before `end`, and where their tiles begin: a multiple of TILE_KEYS.
struct KeySpan {
  int first;
  int visible;
  int end;

  __device__ bool has_tile(int first_key) const { return first_key >= visible && first_key + TILE_KEYS <= end; }
  __device__ bool has(int key) const { return key >= visible && key < end; }
};

__device__ __forceinline__ const int* ranges_of(const PagedAttention& work, int request) {
  return work.ranges == nullptr ? nullptr : work.ranges + 2ll * request * work.most_ranges;
}

// The keys that tokens at positions from `lowest` to `highest` see.
__device__ __forceinline__ KeySpan visible_keys(const PagedAttention& work, int request, int length, int lowest,
                                                int highest) {
  int first = work.window > 0 ? max(0, lowest - work.window + 1) : 0;
  int last = highest;
  if (const int* ranges = ranges_of(work, request)) {
    for (int i = 0; i < work.most_ranges; ++i) {
      const int start = ranges[2 * i];
      const int stop = ranges[2 * i + 1];
      if (start < stop && start <= highest && stop >= lowest) {
        last = max(last, stop);
        first = work.clamp_ranges ? first : min(first, max(start, 0));
      }
    }
  }
  return {first / TILE_KEYS * TILE_KEYS, first, min(length, last + 1)};
}

// Whether a token sees a key.
__device__ __forceinline__ bool is_visible(const PagedAttention& work, const int* ranges, int length, int position,
                                           int key) {
  const bool in_window = work.window <= 0 || position - key < work.window;
  bool visible = key <= position && in_window;
  if (ranges != nullptr && key < length && (in_window || !work.clamp_ranges)) {
    for (int i = 0; i < work.most_ranges; ++i) {
      const int start = ranges[2 * i];
      const int stop = ranges[2 * i + 1];
      visible |= start < stop && position >= start && position <= stop && key >= start && key <= stop;
    }
  }
  return visible;
}

// Where groups of keys of one request and KV head are.
template <int HEAD>
struct Groups {
  const int* table;
  const __half* cache;
  long long block_stride;
  int groups_of_block;
  int last;

  Groups() = default;
  __device__ Groups(const PagedAttention& work, int request, int length, int head)
      : table(work.block_table + static_cast<long long>(request) * work.block_table_stride),
        cache(static_cast<const __half*>(work.cache) + head * work.head_stride),
        block_stride(work.block_stride),
        groups_of_block(work.block_size / CACHE_GROUP),
        last((length - 1) / CACHE_GROUP) {}

  // The group that has key `key`; past the last one, the last one.
  __device__ const __half* of(int key) const {
    const int group = min(key / CACHE_GROUP, last);
    const int block = group / groups_of_block;
    return cache + table[block] * block_stride + (group - block * groups_of_block) * (CACHE_GROUP * 2 * HEAD);
  }
};

// Eight dimensions of a key of a group, and of a value.
__device__ __forceinline__ const uint4* key_part(const __half* group, int key, int dims) {
  return reinterpret_cast<const uint4*>(group) + dims * CACHE_GROUP + key % CACHE_GROUP;
}

template <int HEAD>
__device__ __forceinline__ const uint4* value_part(const __half* group, int key, int dims) {
  return reinterpret_cast<const uint4*>(group + (CACHE_GROUP + key % CACHE_GROUP) * HEAD) + dims;
}

// Where a row of one KV head begins in the query or the result.
template <int HEAD>
__device__ __forceinline__ long long row_offset(const PagedAttention& work, const Request& request, int head, int row,
                                                long long stride) {
  const int token = row / work.group;
  return (request.first_token + token) * stride +
         static_cast<long long>(head * work.group + row - token * work.group) * HEAD;
}

// Stages the queries of rows from `first` on, eight dimensions of all rows after the other, zeros where there is none,
// and the positions of these rows' tokens; rows past the last have its position.
template <int ROWS, int HEAD, int THREADS>
__device__ __forceinline__ void stage_queries(const PagedAttention& work, const Request& request, int head, int first,
                                              uint4* queries, int* positions) {
  const int rows = request.tokens * work.group;
  const __half* query = static_cast<const __half*>(work.query);
  constexpr int PARTS = padded_head_size(HEAD) / 8;
#pragma unroll 2
  for (int i = threadIdx.x; i < ROWS * PARTS; i += THREADS) {
    const int row = i / PARTS;
    const int dims = i % PARTS;
    uint4 piece = make_uint4(0, 0, 0, 0);
    if (first + row < rows && 8 * dims < HEAD) {
      piece = *reinterpret_cast<const uint4*>(
          query + row_offset<HEAD>(work, request, head, first + row, work.query_stride) + 8 * dims);
    }
    queries[dims * (ROWS + 2) + row] = piece;
  }
  for (int row = threadIdx.x; row < ROWS; row += THREADS) {
    positions[row] = request.context() + min(first + row, rows - 1) / work.group;
  }
}

// The references of a lane's rows in its registers.
template <class Tiles, int TILES>
struct HeldReferences {
  float rows[TILES][Tiles::COLUMNS];

  __device__ float get(int, int tile, int column) const { return rows[tile][column]; }
  __device__ void set(int, int tile, int column, float value) { rows[tile][column] = value; }
};

// The references of a warp's rows in shared memory, where registers are short.
template <class Tiles>
struct SharedReferences {
  float* rows;

  __device__ float get(int lane, int tile, int column) const { return rows[8 * tile + Tiles::query(lane, column)]; }
  __device__ void set(int lane, int tile, int column, float value) {
    if (Tiles::is_first(lane)) {
      rows[8 * tile + Tiles::query(lane, column)] = value;
    }
  }
};

// Softmax of the rows that a warp has, while keys come: the reference that logits (times log2 e) are seen from, and
// what this lane has of the sum of exponentials, for each row that it has sums of.
template <class Tiles, int TILES, class References>
struct Softmax {
  References references;
  float sum[TILES][Tiles::COLUMNS];

  __device__ Softmax(int lane, const References& where) : references(where) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int column = 0; column < Tiles::COLUMNS; ++column) {
        references.set(lane, tile, column, LOWEST);
        sum[tile][column] = 0;
      }
    }
    meet_warp();
  }

  // Pairs of exponentials of logits, in fp16. Their sums are of the rounded numbers: then the error of the largest one,
  // which counts most, is in what the results are divided by too. A reference moves only when a logit is far above it:
  // then `rescale(tile, column, factor)` is told by what earlier results must be multiplied.
  template <class Rescale>
  __device__ void add(int lane, const float (&logits)[TILES][8], unsigned int (&pairs)[TILES][4],
                      const Rescale& rescale) {
    float reference[TILES][Tiles::COLUMNS];
    bool is_above = false;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int column = 0; column < Tiles::COLUMNS; ++column) {
        reference[tile][column] = references.get(lane, tile, column);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        is_above |= logits[tile][i] > reference[tile][Tiles::column(i)] + SLACK;
      }
    }
    if (any_lane(is_above)) {
      move(lane, logits, reference, rescale);
    }
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const int i = pair % 2 + pair / 2 * 4;
        const float from = reference[tile][Tiles::column(i)];
        pairs[tile][pair] = halves_from(power_of_two(logits[tile][i] - from), power_of_two(logits[tile][i + 2] - from));
        sum[tile][Tiles::column(i)] += sum_of_halves(pairs[tile][pair]);
      }
    }
  }

  // The sums of exponentials over all lanes.
  __device__ void complete() {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int column = 0; column < Tiles::COLUMNS; ++column) {
#pragma unroll
        for (int bit = 0; bit < Tiles::SHARED_BITS; ++bit) {
          sum[tile][column] += shuffle_xor(sum[tile][column], Tiles::shared_bit(bit));
        }
      }
    }
  }

 private:
  template <class Rescale>
  __device__ void move(int lane, const float (&logits)[TILES][8], float (&reference)[TILES][Tiles::COLUMNS],
                       const Rescale& rescale) {
    // All lanes have read what references were.
    meet_warp();
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      float largest[Tiles::COLUMNS];
#pragma unroll
      for (int column = 0; column < Tiles::COLUMNS; ++column) {
        largest[column] = reference[tile][column];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        largest[Tiles::column(i)] = fmaxf(largest[Tiles::column(i)], logits[tile][i]);
      }
#pragma unroll
      for (int column = 0; column < Tiles::COLUMNS; ++column) {
#pragma unroll
        for (int bit = 0; bit < Tiles::SHARED_BITS; ++bit) {
          largest[column] = fmaxf(largest[column], shuffle_xor(largest[column], Tiles::shared_bit(bit)));
        }
        const float factor = power_of_two(reference[tile][column] - largest[column]);
        reference[tile][column] = largest[column];
        references.set(lane, tile, column, largest[column]);
        sum[tile][column] *= factor;
        rescale(tile, column, factor);
      }
    }
    meet_warp();
  }
};

// What rows need to know to make logits of products.
struct Logits {
  const int* ranges;
  int length;
  float scale;
  bool is_plain;  // products times a scale

  Logits() = default;
  __device__ Logits(const PagedAttention& work, int request, int cached)
      : ranges(ranges_of(work, request)),
        length(cached),
        scale(work.scale * LOG2_E),
        is_plain(work.soft_cap == 0 && work.slopes == nullptr) {}

  // Whether a token at a position from `lowest` to `highest` may not see one of 32 keys from `first_key` on. Ranges only
  // add to what is seen.
  __device__ bool is_masked(const PagedAttention& work, int first_key, int lowest, int highest) const {
    return first_key + TILE_KEYS - 1 > lowest || (work.window > 0 && first_key <= highest - work.window);
  }

  // Products of 32 keys from `first_key` on become logits times log2 e. `positions`: of the warp's rows, the first of
  // which is row `first_row` of the request; has_mask: some of them do not see some of these keys.
  template <class Tiles, int TILES>
  __device__ void make(const PagedAttention& work, int head, int lane, int first_row, int first_key,
                       const int* positions, bool has_mask, float (&products)[TILES][8]) const {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        products[tile][i] *= scale;
      }
    }
    if (!is_plain) {
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int row = 8 * tile + Tiles::query(lane, Tiles::column(i));
          products[tile][i] = changed(work, products[tile][i], head * work.group + (first_row + row) % work.group,
                                      first_key + Tiles::sum_key(lane, i) - positions[row]);
        }
      }
    }
    if (has_mask) {
      // Which sums stay, found out by a loop that is not unrolled: it is long, and few keys need it.
      unsigned int visible = 0;
#pragma unroll 1
      for (int i = 0; i < 8 * TILES; ++i) {
        const int position = positions[i / 8 * 8 + Tiles::query(lane, Tiles::column(i % 8))];
        visible |= (is_visible(work, ranges, length, position, first_key + Tiles::sum_key(lane, i % 8)) ? 1u : 0u) << i;
      }
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          products[tile][i] = visible >> (8 * tile + i) & 1 ? products[tile][i] : minus_infinity();
        }
      }
    }
  }

 private:
  __device__ static float changed(const PagedAttention& work, float logit, int head, int distance) {
    if (work.soft_cap != 0) {
      // tanh x = 1 - 2 / (e^2x + 1)
      const float cap = work.soft_cap * LOG2_E;
      logit = cap - 2 * cap / (power_of_two(2 * LOG2_E * logit / cap) + 1);
    }
    if (work.slopes != nullptr) {
      logit += work.slopes[head] * LOG2_E * distance;
    }
    return logit;
  }
};

// What a sum of exponentials is divided by: with the sink of the row's head, if there are sinks.
__device__ __forceinline__ float with_sink(const PagedAttention& work, int head, int row, float reference, float sum) {
  if (work.sinks == nullptr) {
    return sum;
  }
  return sum + power_of_two(work.sinks[head * work.group + row % work.group] * LOG2_E - reference);
}

}  // namespace vllm_volta

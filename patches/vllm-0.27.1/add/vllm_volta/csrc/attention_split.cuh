// Attention of few rows to many keys, as in decoding: the kernels attention_split_*.
//
// Work is counted in units of SPLIT_UNIT keys, request after request, in each KV head after KV head, in each tile of rows
// after tile. Thread block b of `gridDim.x` does the units from floor(b * units / blocks) to floor((b + 1) * units /
// blocks). Within it each warp has every fourth tile of 32 keys, which go from memory to registers and are fragments at
// once; while one piece is multiplied the next is on its way. What several blocks have of the same rows is merged by the
// one that arrives last, in order of keys.

#pragma once

#include "attention_rows.cuh"

namespace vllm_volta {

// One request's part of the work.
template <int ROWS>
struct SplitRequest {
  Request request;
  KeySpan keys;
  int row_tiles;
  int units_of_tile;

  __device__ SplitRequest(const PagedAttention& work, int number) : request(work, number), keys{0, 0, 0}, row_tiles(0), units_of_tile(0) {
    if (!request.is_empty()) {
      keys = visible_keys(work, number, request.length, request.context(), request.length - 1);
      row_tiles = rounded_up(request.tokens * work.group, ROWS);
      units_of_tile = rounded_up(keys.end - keys.first, SPLIT_UNIT);
    }
  }

  __device__ int units(const PagedAttention& work) const { return work.kv_heads * row_tiles * units_of_tile; }
};

// A place in the work: a request and a unit of it.
struct SplitPlace {
  int request;
  int unit;
};

// Sums over requests that all lanes of a warp make together.
template <int ROWS>
struct SplitWork {
  __device__ static int units_of(const PagedAttention& work, int request) {
    return request < work.requests ? SplitRequest<ROWS>(work, request).units(work) : 0;
  }

  // Sums of `value` over the lanes up to this one.
  __device__ static int running_sum(int lane, int value) {
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int before = shuffle_up(value, lanes);
      value += lane >= lanes ? before : 0;
    }
    return value;
  }

  __device__ static int total(const PagedAttention& work, int lane) {
    int sum = 0;
    for (int first = 0; first < work.requests; first += 32) {
      sum += shuffle_from(running_sum(lane, units_of(work, first + lane)), 31);
    }
    return sum;
  }

  // Where unit `unit` is, one of all there are.
  __device__ static SplitPlace place(const PagedAttention& work, int lane, int unit) {
    for (int first = 0;; first += 32) {
      const int mine = units_of(work, first + lane);
      const int until = running_sum(lane, mine);
      const unsigned int after = lanes_with(unit < until);
      if (after != 0) {
        const int found = __ffs(after) - 1;
        return {first + found, unit - shuffle_from(until - mine, found)};
      }
      unit -= shuffle_from(until, 31);
    }
  }
};

// Which units a thread block has.
struct SplitShares {
  unsigned long long units;
  unsigned int blocks;

  __device__ int begin(unsigned int block) const { return static_cast<int>(block * units / blocks); }
  __device__ int block_of(unsigned int unit) const {
    return static_cast<int>(((unit + 1ull) * blocks - 1) / units);
  }
};

// What a thread block does next: some keys of one tile of rows. It is in shared memory, so that no registers hold it while
// keys are multiplied.
template <int HEAD>
struct SplitItem {
  Request request;
  Groups<HEAD> groups;
  Logits logits;
  KeySpan keys;  // of all blocks
  KeySpan mine;  // of this block
  int head;
  int first_row;
  int first_block;  // of those that have these rows
  int last_block;
  bool has_first_keys;
  unsigned int* arrivals;
};

// Where a thread block is in its share of the work.
struct SplitWalk {
  SplitShares shares;
  SplitPlace place;
  int unit;
  int end;

  __device__ bool is_done() const { return unit >= end; }

  // The next item; the walk is not done. One thread does this.
  template <int HEAD, int ROWS>
  __device__ void next(const PagedAttention& work, SplitItem<HEAD>& item) {
    SplitRequest<ROWS> split(work, place.request);
    while (place.unit >= split.units(work)) {
      place = {place.request + 1, 0};
      split = SplitRequest<ROWS>(work, place.request);
    }
    const int tile = place.unit / split.units_of_tile;
    const int first_unit = place.unit - tile * split.units_of_tile;
    const int last_unit = min(split.units_of_tile, first_unit + end - unit);
    const int begin_of_tile = unit - first_unit;
    const int row_tile = tile % split.row_tiles;
    item.request = split.request;
    item.head = tile / split.row_tiles;
    item.groups = Groups<HEAD>(work, place.request, split.request.length, item.head);
    item.logits = Logits(work, place.request, split.request.length);
    item.keys = split.keys;
    item.mine = {split.keys.first + first_unit * SPLIT_UNIT, split.keys.visible,
                 min(split.keys.end, split.keys.first + last_unit * SPLIT_UNIT)};
    item.first_row = row_tile * ROWS;
    item.first_block = shares.block_of(begin_of_tile);
    item.last_block = shares.block_of(begin_of_tile + split.units_of_tile - 1);
    item.has_first_keys = first_unit == 0;
    // Tiles of rows of all requests before, at the most.
    const long long tiles_before = static_cast<long long>(split.request.first_token) * work.group / ROWS + place.request;
    item.arrivals = work.arrivals + (tiles_before + row_tile) * work.kv_heads + item.head;
    unit += last_unit - first_unit;
    place.unit += last_unit - first_unit;
  }
};

// Eight parts of 16 bytes of a lane.
struct HeldPiece {
  uint4 parts[8];

  __device__ uint4 operator()(int part) const { return parts[part]; }
};

// A tile of 32 keys for one lane.
template <class Tiles, int HEAD>
struct SplitTile {
  const __half* groups[2];
  int first_key;
  bool is_whole;            // some row may see all of its keys

  __device__ SplitTile(const Groups<HEAD>& all, const KeySpan& span, int first)
      : groups{all.of(first), all.of(first + CACHE_GROUP)}, first_key(first), is_whole(span.has_tile(first)) {}

  __device__ HeldPiece load_keys(int lane, int piece) const {
    HeldPiece held;
    const __half* const keys = Tiles::key(lane, 0) < CACHE_GROUP ? groups[0] : groups[1];
#pragma unroll
    for (int part = 0; part < 8; ++part) {
      const int dims = 8 * piece + Tiles::key_dims(lane, part);
      held.parts[part] = make_uint4(0, 0, 0, 0);
      if (8 * dims < HEAD) {
        held.parts[part] = load_streamed(key_part(keys, Tiles::key(lane, part), dims));
      }
    }
    return held;
  }

  // Values that no row sees are zero: their exponentials are, but zero times infinity would be no number.
  __device__ HeldPiece load_values(const KeySpan& span, int lane, int piece) const {
    HeldPiece held;
    const int dims = 8 * piece + Tiles::value_dims(lane);
#pragma unroll
    for (int part = 0; part < 8; ++part) {
      const int key = Tiles::value_key(lane, part);
      held.parts[part] = make_uint4(0, 0, 0, 0);
      if (8 * dims < HEAD && (is_whole || span.has(first_key + key))) {
        held.parts[part] = load_streamed(value_part<HEAD>(groups[part / 4], key, dims));
      }
    }
    return held;
  }
};

template <class Tiles, int HEAD, int TILES>
struct SplitAttention {
  static constexpr int ROWS = 8 * TILES;
  static constexpr int THREADS = 32 * SPLIT_WARPS;
  static constexpr int PIECES = pieces_of(HEAD);
  static constexpr int PADDED = padded_head_size(HEAD);
  static constexpr int QUADS = ROWS * PADDED / 4;

  struct Shared {
    uint4 queries[PADDED / 8 * (ROWS + 2)];
    float4 sums[QUADS];
    unsigned short exponentials[SPLIT_WARPS][ROWS * EXPONENTIALS_STRIDE];
    float references[SPLIT_WARPS][ROWS];
    float sums_of_exponentials[SPLIT_WARPS][ROWS];
    int positions[ROWS];
    SplitWalk walk;
    SplitItem<HEAD> item;
    bool arrived_last;
  };

  // One warp's rows and keys.
  struct Warp {
    float sums[PIECES][TILES][2][8];
    Softmax<Tiles, TILES> softmax;

    __device__ void add_keys(const PagedAttention& work, Shared& shared, int lane, int warp);
  };

  // Where a thread block keeps what it has of rows that others have too: it has at most two such tiles of rows, and of one
  // of them it has the first keys.
  __device__ static float* partial_of(const PagedAttention& work, int block, bool has_first_keys) {
    return work.partial + (2ll * block + (has_first_keys ? 1 : 0)) * (ROWS * (PADDED + 2));
  }

  __device__ static void write_row(const PagedAttention& work, const Request& request, int head, int row, int dim,
                                   const float4& sums, float divisor) {
    if (row < request.tokens * work.group && dim < HEAD) {
      const float factor = 1 / divisor;
      uint2 halves = make_uint2(halves_from(sums.x * factor, sums.y * factor), halves_from(sums.z * factor, sums.w * factor));
      __half* out = static_cast<__half*>(work.out) + row_offset<HEAD>(work, request, head, row, work.out_stride) + dim;
      *reinterpret_cast<uint2*>(out) = halves;
    }
  }

  // Merges what the thread blocks `first` to `last` have of a tile of rows, in this order, and writes the result.
  __device__ static void write_merged(const PagedAttention& work, const Request& request, int head, int first_row, int first,
                                      int last) {
    for (int quad = threadIdx.x; quad < QUADS; quad += THREADS) {
      const int row = quad / (PADDED / 4);
      float reference = LOWEST;
      for (int block = first; block <= last; ++block) {
        reference = fmaxf(reference, load_shared_result(partial_of(work, block, block == first) + ROWS * PADDED + row));
      }
      float sum = 0;
      float4 sums = make_float4(0, 0, 0, 0);
      for (int block = first; block <= last; ++block) {
        const float* partial = partial_of(work, block, block == first);
        const float factor = power_of_two(load_shared_result(partial + ROWS * PADDED + row) - reference);
        const float4 more = load_shared_result(reinterpret_cast<const float4*>(partial) + quad);
        sum += factor * load_shared_result(partial + ROWS * PADDED + ROWS + row);
        sums.x += factor * more.x;
        sums.y += factor * more.y;
        sums.z += factor * more.z;
        sums.w += factor * more.w;
      }
      write_row(work, request, head, first_row + row, quad % (PADDED / 4) * 4, sums,
                with_sink(work, head, first_row + row, reference, sum));
    }
  }

  // Adds up what the warps have, into shared.sums and, of each row, the reference and sum of the first warp.
  __device__ __forceinline__ static void merge_warps(Shared& shared, Warp& mine, int lane, int warp) {
    mine.softmax.complete();
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int column = 0; column < Tiles::COLUMNS; ++column) {
        const int row = 8 * tile + Tiles::query(lane, column);
        shared.references[warp][row] = mine.softmax.reference[tile][column];
        shared.sums_of_exponentials[warp][row] = mine.softmax.sum[tile][column];
      }
    }
    __syncthreads();
    float factors[TILES][Tiles::COLUMNS];
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int column = 0; column < Tiles::COLUMNS; ++column) {
        float reference = LOWEST;
#pragma unroll
        for (int other = 0; other < SPLIT_WARPS; ++other) {
          reference = fmaxf(reference, shared.references[other][8 * tile + Tiles::query(lane, column)]);
        }
        factors[tile][column] = power_of_two(mine.softmax.reference[tile][column] - reference);
      }
    }
    float* sums = reinterpret_cast<float*>(shared.sums);
    for (int turn = 0; turn < SPLIT_WARPS; ++turn) {
      if (turn == warp) {
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
              for (int i = 0; i < 8; ++i) {
                const int row = 8 * tile + Tiles::query(lane, Tiles::column(i));
                float& sum = sums[row * PADDED + PIECE_DIMS * piece + Tiles::sum_dim(lane, half, i)];
                const float value = factors[tile][Tiles::column(i)] * mine.sums[piece][tile][half][i];
                sum = turn == 0 ? value : sum + value;
              }
            }
          }
        }
      }
      __syncthreads();
    }
  }

  // The reference of a row over all warps, and its sum of exponentials.
  __device__ static float2 merged_row(const Shared& shared, int row) {
    float reference = LOWEST;
#pragma unroll
    for (int warp = 0; warp < SPLIT_WARPS; ++warp) {
      reference = fmaxf(reference, shared.references[warp][row]);
    }
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < SPLIT_WARPS; ++warp) {
      sum += shared.sums_of_exponentials[warp][row] * power_of_two(shared.references[warp][row] - reference);
    }
    return make_float2(reference, sum);
  }

  __device__ static void run(const PagedAttention& work);
};

template <class Tiles, int HEAD, int TILES>
__device__ __forceinline__ void SplitAttention<Tiles, HEAD, TILES>::Warp::add_keys(const PagedAttention& work, Shared& shared,
                                                                                   int lane, int warp) {
  const SplitItem<HEAD>& item = shared.item;
#pragma unroll
  for (int piece = 0; piece < PIECES; ++piece) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        sums[piece][tile][i / 8][i % 8] = 0;
      }
    }
  }
  const int end = item.mine.end;
  int first = item.mine.first + warp * TILE_KEYS;
  if (first >= end) {
    return;
  }
  constexpr int STRIDE = ROWS + 2;
  const uint4* queries = shared.queries + Tiles::queries(lane, STRIDE);
  unsigned short* exponentials = shared.exponentials[warp];
  using Tile = SplitTile<Tiles, HEAD>;
  Tile tile(item.groups, item.keys, first);
  HeldPiece held = tile.load_keys(lane, 0);
  for (; first < end; first += SPLIT_UNIT) {
    const bool is_last = first + SPLIT_UNIT >= end;
    const Tile next(item.groups, item.keys, is_last ? first : first + SPLIT_UNIT);
    float values[TILES][8] = {};
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      const HeldPiece following =
          piece + 1 < PIECES ? tile.load_keys(lane, piece + 1) : tile.load_values(item.keys, lane, 0);
      Tiles::template multiply_keys<TILES>(held, queries + 8 * piece * STRIDE, STRIDE, values);
      held = following;
    }
    item.logits.template make<Tiles, TILES>(
        work, item.head, lane, item.first_row, first, shared.positions,
        item.logits.is_masked(work, first, shared.positions[0], shared.positions[ROWS - 1]), values);
    softmax.add(values, [&](int each, int column, float factor) {
#pragma unroll
      for (int piece = 0; piece < PIECES; ++piece) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (Tiles::column(i) == column) {
            sums[piece][each][0][i] *= factor;
            sums[piece][each][1][i] *= factor;
          }
        }
      }
    });
#pragma unroll
    for (int each = 0; each < TILES; ++each) {
      Tiles::store_exponentials(lane, values[each], exponentials + each * 8 * EXPONENTIALS_STRIDE);
    }
    meet_warp();
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      HeldPiece following = held;
      if (piece + 1 < PIECES) {
        following = tile.load_values(item.keys, lane, piece + 1);
      } else if (!is_last) {
        following = next.load_keys(lane, 0);
      }
      Tiles::template multiply_values<TILES>(held, exponentials + Tiles::exponentials(lane), sums[piece]);
      held = following;
    }
    meet_warp();
    tile = next;
  }
}

template <class Tiles, int HEAD, int TILES>
__device__ __forceinline__ void SplitAttention<Tiles, HEAD, TILES>::run(const PagedAttention& work) {
  __shared__ Shared shared;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  if (warp == 0) {
    const unsigned int units = SplitWork<ROWS>::total(work, lane);
    // A block without a unit would never arrive where others wait for it.
    const SplitShares shares{units, min(units, gridDim.x)};
    SplitWalk walk{shares, {0, 0}, 0, 0};
    if (blockIdx.x < shares.blocks) {
      walk.unit = shares.begin(blockIdx.x);
      walk.end = shares.begin(blockIdx.x + 1);
      walk.place = SplitWork<ROWS>::place(work, lane, walk.unit);
    }
    if (lane == 0) {
      shared.walk = walk;
    }
  }
  __syncthreads();
  while (!shared.walk.is_done()) {
    __syncthreads();
    const SplitItem<HEAD>& item = shared.item;
    if (threadIdx.x == 0) {
      shared.walk.template next<HEAD, ROWS>(work, shared.item);
    }
    __syncthreads();
    stage_queries<ROWS, HEAD, THREADS>(work, item.request, item.head, item.first_row, shared.queries, shared.positions);
    __syncthreads();
    Warp rows;
    rows.add_keys(work, shared, lane, warp);
    merge_warps(shared, rows, lane, warp);

    const unsigned int others = item.last_block - item.first_block;
    if (others == 0) {
      for (int quad = threadIdx.x; quad < QUADS; quad += THREADS) {
        const int row = quad / (PADDED / 4);
        const float2 merged = merged_row(shared, row);
        write_row(work, item.request, item.head, item.first_row + row, quad % (PADDED / 4) * 4, shared.sums[quad],
                  with_sink(work, item.head, item.first_row + row, merged.x, merged.y));
      }
      continue;
    }
    float* partial = partial_of(work, blockIdx.x, item.has_first_keys);
    for (int quad = threadIdx.x; quad < QUADS; quad += THREADS) {
      reinterpret_cast<float4*>(partial)[quad] = shared.sums[quad];
    }
    if (threadIdx.x < ROWS) {
      const float2 merged = merged_row(shared, threadIdx.x);
      partial[ROWS * PADDED + threadIdx.x] = merged.x;
      partial[ROWS * PADDED + ROWS + threadIdx.x] = merged.y;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.arrived_last = atomicAdd(item.arrivals, 1u) == others;
    }
    __syncthreads();
    if (shared.arrived_last) {
      __threadfence();
      write_merged(work, item.request, item.head, item.first_row, item.first_block, item.last_block);
      if (threadIdx.x == 0) {
        *item.arrivals = 0;
      }
    }
  }
}

// BLOCKS: how many thread blocks of one multiprocessor (65536 registers) the registers of the kernel must allow.
#define VOLTA_SPLIT_KERNEL(NAME, TILES, HEAD, ROWS, BLOCKS)                                   \
  extern "C" __global__ void __launch_bounds__(32 * SPLIT_WARPS, BLOCKS)                     \
      attention_split_##NAME##_##HEAD##_##ROWS(const PagedAttention work) {                  \
    SplitAttention<TILES, HEAD, ROWS / 8>::run(work);                                        \
  }
#define VOLTA_SPLIT_KERNELS(NAME, TILES)    \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 64, 8, 4)   \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 64, 16, 3)  \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 80, 8, 3)   \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 80, 16, 2)  \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 96, 8, 3)   \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 96, 16, 2)  \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 128, 8, 3)  \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 128, 16, 2) \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 256, 8, 2)  \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 256, 16, 2) \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 512, 8, 2)

VOLTA_SPLIT_KERNELS(quad_pairs, QuadPairTiles)
VOLTA_SPLIT_KERNELS(octets, OctetTiles)

}  // namespace vllm_volta

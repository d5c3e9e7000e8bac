// Attention of few rows to many keys, as in decoding: the kernels attention_split_*.
//
// Work is counted in units of SPLIT_UNIT keys, request after request, in each KV head after KV head, in each tile of
// rows after tile. Thread block b of `gridDim.x` does the units from floor(b * units / blocks) to floor((b + 1) * units
// / blocks). Within it each warp has every fourth tile of 32 keys, which go from memory to registers and are fragments
// at once; while one piece is multiplied the next is on its way. What several blocks have of the same rows is merged by
// the one that arrives last, in order of keys; what many have, in two steps, by groups of blocks first.

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

  __device__ SplitRequest(const PagedAttention& work, int number)
      : request(work, number), keys{0, 0, 0}, row_tiles(0), units_of_tile(0) {
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
  __device__ int block_of(unsigned int unit) const { return static_cast<int>(((unit + 1ull) * blocks - 1) / units); }
};

// What a thread block does next: some keys of one tile of rows. It is in shared memory, so that no registers hold it
// while keys are multiplied.
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
    // Tiles of rows of all requests before, at the most.
    const long long tiles_before =
        static_cast<long long>(split.request.first_token) * work.group / ROWS + place.request;
    item.arrivals = work.arrivals + 2 * MOST_SPLIT_BLOCKS + (tiles_before + row_tile) * work.kv_heads + item.head;
    unit += last_unit - first_unit;
    place.unit += last_unit - first_unit;
  }
};

// Eight parts of 16 bytes of a lane.
struct HeldPiece {
  uint4 parts[8];

  __device__ uint4 operator()(int part) const { return parts[part]; }
};

// Where the 32 keys of a tile are: two groups.
template <class Tiles, int HEAD>
struct SplitTile {
  const __half* groups[2];

  __device__ SplitTile(const Groups<HEAD>& all, int first_key)
      : groups{all.of(first_key), all.of(first_key + CACHE_GROUP)} {}

  __device__ uint4 load_keys(int lane, int piece, int part) const {
    const __half* const keys = Tiles::key(lane, 0) < CACHE_GROUP ? groups[0] : groups[1];
    const int dims = 8 * piece + Tiles::key_dims(lane, part);
    return 8 * dims < HEAD ? load_streamed(key_part(keys, Tiles::key(lane, part), dims)) : make_uint4(0, 0, 0, 0);
  }

  // Values that no row sees are zero: their exponentials are, but zero times infinity would be no number. is_whole:
  // some row may see all of them.
  __device__ uint4 load_values(const KeySpan& span, bool is_whole, int first_key, int lane, int piece, int part) const {
    const int dims = 8 * piece + Tiles::value_dims(lane);
    const int key = Tiles::value_key(lane, part);
    const bool is_there = 8 * dims < HEAD && (is_whole || span.has(first_key + key));
    return is_there ? load_streamed(value_part<HEAD>(groups[part / 4], key, dims)) : make_uint4(0, 0, 0, 0);
  }
};

template <class Tiles, int HEAD, int TILES>
struct SplitAttention {
  static constexpr int ROWS = 8 * TILES;
  static constexpr int THREADS = 32 * SPLIT_WARPS;
  static constexpr int PIECES = pieces_of(HEAD);
  static constexpr int PADDED = padded_head_size(HEAD);
  static constexpr int QUADS = ROWS * PADDED / 4;
  static constexpr int STRIDE = ROWS + 2;  // of staged queries, from eight dimensions to the next
  // Results that are merged in one step, at the most: the root of the most there can be, and in one step if so few.
  static constexpr int MOST_PARTS = 32;
  static constexpr int FEW_PARTS = 8;
  // Where registers are short, a piece takes the place of the one before, part by part; else it has its own.
  static constexpr bool REFILLS = PADDED * TILES >= 512;
  static_assert(MOST_PARTS * MOST_PARTS == MOST_SPLIT_BLOCKS);

  struct Shared {
    uint4 queries[PADDED / 8 * STRIDE];
    float4 sums[QUADS];
    unsigned short exponentials[SPLIT_WARPS][ROWS * EXPONENTIALS_STRIDE];
    float references[SPLIT_WARPS][ROWS];
    float sums_of_exponentials[SPLIT_WARPS][ROWS];
    int positions[ROWS];
    SplitWalk walk;
    SplitItem<HEAD> item;
    float part_references[MOST_PARTS][ROWS];
    float part_sums[MOST_PARTS][ROWS];
    bool arrived_last;
  };

  // One warp's rows and keys.
  struct Warp {
    float sums[PIECES][TILES][2][8];
    Softmax<Tiles, TILES, HeldReferences<Tiles, TILES>> softmax;

    __device__ explicit Warp(int lane) : softmax(lane, {}) {}
    __device__ void add_keys(const PagedAttention& work, Shared& shared, int lane, int warp);
  };

  // Multiplies the piece of keys that is held, and puts the following one, which is on its way meanwhile, in its place.
  template <class Following>
  __device__ __forceinline__ static void multiply_keys(HeldPiece& held, const Following& following,
                                                       const uint4* queries, float (&logits)[TILES][8]) {
    if constexpr (REFILLS) {
      const auto refill = [&](int part) { held.parts[part] = following(part); };
      Tiles::template multiply_keys<TILES>(held, refill, queries, STRIDE, logits);
    } else {
      const HeldPiece next = all_parts(following);
      Tiles::template multiply_keys<TILES>(held, [](int) {}, queries, STRIDE, logits);
      held = next;
    }
  }

  // The same with values.
  template <class Following>
  __device__ __forceinline__ static void multiply_values(HeldPiece& held, const Following& following,
                                                         const unsigned short* exponentials,
                                                         float (&sums)[TILES][2][8]) {
    if constexpr (REFILLS) {
      const auto refill = [&](int part) { held.parts[part] = following(part); };
      Tiles::template multiply_values<TILES>(held, refill, exponentials, sums);
    } else {
      const HeldPiece next = all_parts(following);
      Tiles::template multiply_values<TILES>(held, [](int) {}, exponentials, sums);
      held = next;
    }
  }

  template <class Part>
  __device__ __forceinline__ static HeldPiece all_parts(const Part& part) {
    HeldPiece piece;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      piece.parts[i] = part(i);
    }
    return piece;
  }

  // The number of what a thread block has of rows that others have too: it has at most two such tiles of rows, and of
  // one of them it has the first keys.
  __device__ static int result_of(const SplitItem<HEAD>& item, int block) {
    return 2 * block + (block == item.first_block ? 1 : 0);
  }
  __device__ static float* partial_of(const PagedAttention& work, const SplitItem<HEAD>& item, int block) {
    return work.partial + static_cast<long long>(result_of(item, block)) * result_floats(ROWS, PADDED);
  }

  __device__ static void write_row(const PagedAttention& work, const Request& request, int head, int row, int dim,
                                   const float4& sums, float divisor) {
    if (row < request.tokens * work.group && dim < HEAD) {
      const float factor = 1 / divisor;
      uint2 halves =
          make_uint2(halves_from(sums.x * factor, sums.y * factor), halves_from(sums.z * factor, sums.w * factor));
      __half* out = static_cast<__half*>(work.out) + row_offset<HEAD>(work, request, head, row, work.out_stride) + dim;
      *reinterpret_cast<uint2*>(out) = halves;
    }
  }

  // Merges what `count` thread blocks have of a tile of rows: `first`, `first + step` and so on, in this order. The
  // result is what `first` has then, or the rows themselves if it is all there is.
  __device__ static void merge_blocks(const PagedAttention& work, Shared& shared, int first, int count, int step,
                                      bool is_all) {
    const SplitItem<HEAD>& item = shared.item;
    for (int i = threadIdx.x; i < count * ROWS; i += THREADS) {
      const int row = i % ROWS;
      const float* partial = partial_of(work, item, first + i / ROWS * step) + ROWS * PADDED;
      shared.part_references[i / ROWS][row] = load_shared_result(partial + row);
      shared.part_sums[i / ROWS][row] = load_shared_result(partial + ROWS + row);
    }
    __syncthreads();
    if (threadIdx.x < ROWS) {
      const int row = threadIdx.x;
      float reference = LOWEST;
      for (int part = 0; part < count; ++part) {
        reference = fmaxf(reference, shared.part_references[part][row]);
      }
      float sum = 0;
      for (int part = 0; part < count; ++part) {
        const float factor = power_of_two(shared.part_references[part][row] - reference);
        sum += factor * shared.part_sums[part][row];
        shared.part_references[part][row] = factor;
      }
      shared.references[0][row] = reference;
      shared.sums_of_exponentials[0][row] = sum;
    }
    __syncthreads();
    for (int quad = threadIdx.x; quad < QUADS; quad += THREADS) {
      const int row = quad / (PADDED / 4);
      float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll 4
      for (int part = 0; part < count; ++part) {
        const float4 more =
            load_shared_result(reinterpret_cast<const float4*>(partial_of(work, item, first + part * step)) + quad);
        const float factor = shared.part_references[part][row];
        sums.x += factor * more.x;
        sums.y += factor * more.y;
        sums.z += factor * more.z;
        sums.w += factor * more.w;
      }
      const float reference = shared.references[0][row];
      const float sum = shared.sums_of_exponentials[0][row];
      if (is_all) {
        write_row(work, item.request, item.head, item.first_row + row, quad % (PADDED / 4) * 4, sums,
                  with_sink(work, item.head, item.first_row + row, reference, sum));
      } else {
        float* partial = partial_of(work, item, first);
        reinterpret_cast<float4*>(partial)[quad] = sums;
        if (quad % (PADDED / 4) == 0) {
          partial[ROWS * PADDED + row] = reference;
          partial[ROWS * PADDED + ROWS + row] = sum;
        }
      }
    }
  }

  // Whether this thread block is the last of `count` that come here; then what the others wrote before can be read, and
  // the counter is zero again.
  __device__ static bool arrives_last(Shared& shared, unsigned int* counter, int count) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.arrived_last = atomicAdd(counter, 1u) == static_cast<unsigned int>(count - 1);
      if (shared.arrived_last) {
        *counter = 0;
      }
    }
    __syncthreads();
    __threadfence();
    return shared.arrived_last;
  }

  // Leaves what this thread block has of a tile of rows where the last of those that share them finds it.
  __device__ static void share_rows(const PagedAttention& work, Shared& shared) {
    const SplitItem<HEAD>& item = shared.item;
    float* partial = partial_of(work, item, blockIdx.x);
    for (int quad = threadIdx.x; quad < QUADS; quad += THREADS) {
      reinterpret_cast<float4*>(partial)[quad] = shared.sums[quad];
    }
    if (threadIdx.x < ROWS) {
      const float2 merged = merged_row(shared, threadIdx.x);
      partial[ROWS * PADDED + threadIdx.x] = merged.x;
      partial[ROWS * PADDED + ROWS + threadIdx.x] = merged.y;
    }
    const int count = item.last_block - item.first_block + 1;
    int step = 1;
    if (count > FEW_PARTS) {
      step = static_cast<int>(ceilf(sqrtf(static_cast<float>(count))));
      const int first = item.first_block + (static_cast<int>(blockIdx.x) - item.first_block) / step * step;
      const int parts = min(step, item.last_block - first + 1);
      if (!arrives_last(shared, work.arrivals + result_of(item, first), parts)) {
        return;
      }
      merge_blocks(work, shared, first, parts, 1, false);
    }
    const int parts = rounded_up(count, step);
    if (arrives_last(shared, item.arrivals, parts)) {
      merge_blocks(work, shared, item.first_block, parts, step, true);
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
        shared.references[warp][row] = mine.softmax.references.get(lane, tile, column);
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
        factors[tile][column] = power_of_two(mine.softmax.references.get(lane, tile, column) - reference);
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
__device__ __forceinline__ void SplitAttention<Tiles, HEAD, TILES>::Warp::add_keys(const PagedAttention& work,
                                                                                   Shared& shared, int lane, int warp) {
  const SplitItem<HEAD>& item = shared.item;
  const int end = item.mine.end;
  int first = item.mine.first + warp * TILE_KEYS;
  using Tile = SplitTile<Tiles, HEAD>;
  Tile tile(item.groups, min(first, end - 1));
  HeldPiece held = all_parts([&](int part) { return tile.load_keys(lane, 0, part); });
  stage_queries<ROWS, HEAD, THREADS>(work, item.request, item.head, item.first_row, shared.queries, shared.positions);
  __syncthreads();
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
  const uint4* queries = shared.queries + Tiles::queries(lane, STRIDE);
  unsigned short* exponentials = shared.exponentials[warp];
  for (; first < end; first += SPLIT_UNIT) {
    const bool is_last = first + SPLIT_UNIT >= end;
    const Tile next(item.groups, is_last ? first : first + SPLIT_UNIT);
    const bool is_whole = item.keys.has_tile(first);
    float values[TILES][8] = {};
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      const auto following = [&](int part) {
        return piece + 1 < PIECES ? tile.load_keys(lane, piece + 1, part)
                                  : tile.load_values(item.keys, is_whole, first, lane, 0, part);
      };
      multiply_keys(held, following, queries + 8 * piece * STRIDE, values);
    }
    item.logits.template make<Tiles, TILES>(
        work, item.head, lane, item.first_row, first, shared.positions,
        item.logits.is_masked(work, first, shared.positions[0], shared.positions[ROWS - 1]), values);
    unsigned int pairs[TILES][4];
    softmax.add(lane, values, pairs, [&](int each, int column, float factor) {
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
      Tiles::store_exponentials(lane, pairs[each], exponentials + each * 8 * EXPONENTIALS_STRIDE);
    }
    meet_warp();
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      const auto following = [&](int part) {
        return piece + 1 < PIECES ? tile.load_values(item.keys, is_whole, first, lane, piece + 1, part)
               : is_last          ? make_uint4(0, 0, 0, 0)
                                  : next.load_keys(lane, 0, part);
      };
      multiply_values(held, following, exponentials + Tiles::exponentials(lane), sums[piece]);
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
    const SplitShares shares{units, min(units, min(gridDim.x, static_cast<unsigned int>(MOST_SPLIT_BLOCKS)))};
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
    Warp rows(lane);
    rows.add_keys(work, shared, lane, warp);
    merge_warps(shared, rows, lane, warp);

    if (item.last_block == item.first_block) {
      for (int quad = threadIdx.x; quad < QUADS; quad += THREADS) {
        const int row = quad / (PADDED / 4);
        const float2 merged = merged_row(shared, row);
        write_row(work, item.request, item.head, item.first_row + row, quad % (PADDED / 4) * 4, shared.sums[quad],
                  with_sink(work, item.head, item.first_row + row, merged.x, merged.y));
      }
      continue;
    }
    share_rows(work, shared);
  }
}

// BLOCKS: how many thread blocks of one multiprocessor (65536 registers) the registers of the kernel must allow.
#define VOLTA_SPLIT_KERNEL(NAME, TILES, HEAD, ROWS, BLOCKS)                 \
  extern "C" __global__ void __launch_bounds__(32 * SPLIT_WARPS, BLOCKS)    \
      attention_split_##NAME##_##HEAD##_##ROWS(const PagedAttention work) { \
    SplitAttention<TILES, HEAD, ROWS / 8>::run(work);                       \
  }
#define VOLTA_SPLIT_KERNELS(NAME, TILES)      \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 64, 8, 3)   \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 64, 16, 2)  \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 80, 8, 2)   \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 80, 16, 2)  \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 96, 8, 2)   \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 96, 16, 2)  \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 128, 8, 2)  \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 128, 16, 2) \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 256, 8, 2)  \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 256, 16, 2) \
  VOLTA_SPLIT_KERNEL(NAME, TILES, 512, 8, 2)

VOLTA_SPLIT_KERNELS(quad_pairs, QuadPairTiles)
VOLTA_SPLIT_KERNELS(octets, OctetTiles)

}  // namespace vllm_volta

// Attention of many rows, as for prompts: the kernels attention_tiled_*.
//
// A thread block has tiled_rows() rows of one request and KV head, each of its eight warps an eighth of them. Queries
// are in shared memory. Keys and values come through it, one piece (32 keys by 64 dimensions) at a time: while all
// warps multiply one, the next is on its way. Where there are few rows, several blocks (the grid's third dimension)
// share their keys; the one that arrives last merges what they have, in order of keys.

#pragma once

#include "attention_rows.cuh"

namespace vllm_volta {

// The rows of one thread block.
struct TiledPlace {
  int request;
  int block;  // of the request's blocks; negative: there is no work
};

// Which rows thread block `number` has: those of the last tokens of each request, which see the most keys, first. All
// lanes of a warp come together.
template <int ROWS>
__device__ __forceinline__ TiledPlace tiled_place(const PagedAttention& work, int lane, int number) {
  for (int first = 0; first < work.requests; first += 32) {
    int blocks = 0;
    if (first + lane < work.requests) {
      const Request request(work, first + lane);
      blocks = request.is_empty() ? 0 : rounded_up(request.tokens * work.group, ROWS);
    }
    const int until = running_sum(lane, blocks);
    const unsigned int after = lanes_with(number < until);
    if (after != 0) {
      const int found = __ffs(after) - 1;
      return {first + found, shuffle_from(until, found) - 1 - number};
    }
    number -= shuffle_from(until, 31);
  }
  return {0, -1};
}

template <class Tiles, int HEAD>
struct TiledAttention {
  static constexpr int WARP_ROWS = tiled_rows_of_warp(HEAD);
  static constexpr int TILES = WARP_ROWS / 8;
  static constexpr int ROWS = tiled_rows(HEAD);
  static constexpr int THREADS = 32 * TILED_WARPS;
  static constexpr int PIECES = pieces_of(HEAD);
  static constexpr int PADDED = padded_head_size(HEAD);
  static constexpr int STRIDE = ROWS + 2;
  static constexpr int STAGED_VALUE_PARTS = STAGED_VALUE_BYTES / 16;
  static constexpr int STAGED_PARTS = STAGED_PIECE_BYTES / 16;
  static_assert(TILE_KEYS * PIECE_DIMS / 8 == THREADS, "each thread has one part of a piece on its way");
  static_assert(MOST_TILED_PARTS * 4 <= PADDED * 2, "factors fit where queries were");
  static_assert(STAGED_KEYS * PIECE_DIMS / 8 <= STAGED_PARTS, "a piece of keys fits where one of values does");

  // What is the same for all threads, in shared memory, so that no registers hold it.
  struct Shared {
    Request request;
    Groups<HEAD> groups;
    Logits logits;
    KeySpan span;
    int first;  // keys of this block: from here
    int end;    // to before here, of which span has as many as there are
    int parts;  // blocks that have these rows
    int positions[ROWS];
    float references[ROWS];
    bool arrived_last;
  };
  using WarpSoftmax = Softmax<Tiles, TILES, SharedReferences<Tiles>>;

  // What a thread loads of a tile of 32 keys: of each piece of keys 16 bytes, of each piece of values 16 bytes.
  struct Loader {
    const __half* keys;
    const __half* values;  // null for a value that no row sees

    __device__ Loader(const Groups<HEAD>& groups, const KeySpan& span, int first)
        : keys(groups.of(first + threadIdx.x % TILE_KEYS)),
          values(span.has(first + threadIdx.x / 8) ? groups.of(first + threadIdx.x / 8) : nullptr) {}

    __device__ uint4 load_keys(int piece) const {
      const int dims = 8 * piece + threadIdx.x / TILE_KEYS;
      uint4 part = make_uint4(0, 0, 0, 0);
      if (8 * dims < HEAD) {
        part = load_streamed(key_part(keys, threadIdx.x % TILE_KEYS, dims));
      }
      return part;
    }

    // Values that no row sees are zero: their exponentials are, but zero times infinity would be no number.
    __device__ uint4 load_values(int piece) const {
      const int dims = 8 * piece + threadIdx.x % 8;
      uint4 part = make_uint4(0, 0, 0, 0);
      if (8 * dims < HEAD && values != nullptr) {
        part = load_streamed(value_part<HEAD>(values, threadIdx.x / 8, dims));
      }
      return part;
    }
  };

  __device__ static void store_keys(uint4* staged, const uint4& part) {
    staged[threadIdx.x / TILE_KEYS * STAGED_KEYS + threadIdx.x % TILE_KEYS] = part;
  }

  __device__ static void store_values(uint4* staged, const uint4& part) {
    staged[threadIdx.x / 8 * STAGED_VALUE_PARTS + threadIdx.x % 8] = part;
  }

  __device__ static void run(const PagedAttention& work) {
    __shared__ Shared shared;
    uint4* const queries = dynamic_shared<uint4>();
    uint4* const staged = queries + query_bytes(ROWS, PADDED) / 16;
    const int lane = threadIdx.x % 32;
    const int warp_row = threadIdx.x / 32 * WARP_ROWS;
    const int head = blockIdx.y;
    const TiledPlace place = tiled_place<ROWS>(work, lane, blockIdx.x);
    if (place.block < 0) {
      return;
    }
    const int first_row = place.block * ROWS;
    if (threadIdx.x == 0) {
      shared.request = Request(work, place.request);
      shared.groups = Groups<HEAD>(work, place.request, shared.request.length, head);
      shared.logits = Logits(work, place.request, shared.request.length);
    }
    __syncthreads();
    stage_queries<ROWS, HEAD, THREADS>(work, shared.request, head, first_row, queries, shared.positions);
    __syncthreads();
    if (threadIdx.x == 0) {
      const KeySpan span =
          visible_keys(work, place.request, shared.request.length, shared.positions[0], shared.positions[ROWS - 1]);
      const int tiles = rounded_up(span.end - span.first, TILE_KEYS);
      const int parts = min(static_cast<int>(gridDim.z), max(1, tiles / LEAST_TILES_OF_PART));
      const int part = blockIdx.z;
      shared.span = span;
      shared.parts = parts;
      shared.first = span.first + part * tiles / parts * TILE_KEYS;
      shared.end = span.first + (part + 1) * tiles / parts * TILE_KEYS;
    }
    const int* const positions = shared.positions + warp_row;
    const bool has_rows = first_row + warp_row < shared.request.tokens * work.group;
    KeySpan warp_span =
        visible_keys(work, place.request, shared.request.length, positions[0], positions[WARP_ROWS - 1]);
    warp_span.end = has_rows ? warp_span.end : 0;
    const uint4* const warp_queries = queries + warp_row + Tiles::queries(lane, STRIDE);
    unsigned short* const exponentials =
        reinterpret_cast<unsigned short*>(staged + 2 * STAGED_PARTS) + warp_row * EXPONENTIALS_STRIDE;
    __syncthreads();
    if (static_cast<int>(blockIdx.z) >= shared.parts) {
      return;
    }

    float sums[PIECES][TILES][2][8] = {};
    WarpSoftmax softmax(lane, {shared.references + warp_row});
    Loader loader(shared.groups, shared.span, shared.first);
    store_keys(staged, loader.load_keys(0));
    __syncthreads();
    int buffer = 0;
    for (int first = shared.first; first < shared.end; first += TILE_KEYS) {
      const bool is_last = first + TILE_KEYS >= shared.end;
      const Loader next(shared.groups, shared.span, is_last ? first : first + TILE_KEYS);
      const bool has_keys = first < warp_span.end && first + TILE_KEYS > warp_span.visible;
      float values[TILES][8] = {};
#pragma unroll
      for (int piece = 0; piece < PIECES; ++piece) {
        const uint4 following = piece + 1 < PIECES ? loader.load_keys(piece + 1) : loader.load_values(0);
        if (has_keys) {
          const uint4* const keys = staged + buffer * STAGED_PARTS;
          const auto part = [&](int i) { return keys[Tiles::key_dims(lane, i) * STAGED_KEYS + Tiles::key(lane, i)]; };
          Tiles::template multiply_keys<TILES>(part, [](int) {}, warp_queries + 8 * piece * STRIDE, STRIDE, values);
        }
        buffer ^= 1;
        if (piece + 1 < PIECES) {
          store_keys(staged + buffer * STAGED_PARTS, following);
        } else {
          store_values(staged + buffer * STAGED_PARTS, following);
        }
        __syncthreads();
      }
      if (has_keys) {
        const bool is_masked = shared.logits.is_masked(work, first, positions[0], positions[WARP_ROWS - 1]);
        shared.logits.template make<Tiles, TILES>(work, head, lane, first_row + warp_row, first, positions, is_masked,
                                                  values);
        unsigned int pairs[TILES][4];
        softmax.add(lane, values, pairs, [&](int tile, int column, float factor) {
#pragma unroll
          for (int piece = 0; piece < PIECES; ++piece) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
              if (Tiles::column(i) == column) {
                sums[piece][tile][0][i] *= factor;
                sums[piece][tile][1][i] *= factor;
              }
            }
          }
        });
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
          Tiles::store_exponentials(lane, pairs[tile], exponentials + tile * 8 * EXPONENTIALS_STRIDE);
        }
        meet_warp();
      }
#pragma unroll
      for (int piece = 0; piece < PIECES; ++piece) {
        uint4 following = make_uint4(0, 0, 0, 0);
        if (piece + 1 < PIECES) {
          following = loader.load_values(piece + 1);
        } else if (!is_last) {
          following = next.load_keys(0);
        }
        if (has_keys) {
          const uint4* const values_staged = staged + buffer * STAGED_PARTS + Tiles::value_dims(lane);
          const auto part = [&](int i) { return values_staged[Tiles::value_key(lane, i) * STAGED_VALUE_PARTS]; };
          Tiles::template multiply_values<TILES>(
              part, [](int) {}, exponentials + Tiles::exponentials(lane), sums[piece]);
        }
        buffer ^= 1;
        if (piece + 1 < PIECES) {
          store_values(staged + buffer * STAGED_PARTS, following);
        } else {
          store_keys(staged + buffer * STAGED_PARTS, following);
        }
        __syncthreads();
      }
      loader = next;
    }
    softmax.complete();
    if (shared.parts > 1) {
      share_rows(work, shared, head, first_row, lane, warp_row, softmax, sums, reinterpret_cast<float*>(queries));
    } else if (has_rows) {
      write_rows(work, shared.request, head, first_row + warp_row, lane, softmax, sums,
                 reinterpret_cast<__half*>(queries) + warp_row * PADDED);
    }
  }

 private:
  __device__ static float* partial_of(const PagedAttention& work, int head, int part) {
    const long long block = (static_cast<long long>(part) * gridDim.x + blockIdx.x) * gridDim.y + head;
    return work.partial + block * result_floats(ROWS, PADDED);
  }

  // Leaves what this thread block has of its rows where the last of those that share them finds it; that one writes
  // them. `factors`: room for MOST_TILED_PARTS numbers for each row.
  __device__ __forceinline__ static void share_rows(const PagedAttention& work, Shared& shared, int head, int first_row,
                                                    int lane, int warp_row, const WarpSoftmax& softmax,
                                                    const float (&sums)[PIECES][TILES][2][8], float* factors) {
    float* const partial = partial_of(work, head, blockIdx.z);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int column = 0; column < Tiles::COLUMNS; ++column) {
        const int row = warp_row + 8 * tile + Tiles::query(lane, column);
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
#pragma unroll
          for (int i = 0; i < 16; ++i) {
            if (Tiles::column(i % 8) == column) {
              partial[row * PADDED + PIECE_DIMS * piece + Tiles::sum_dim(lane, i / 8, i % 8)] =
                  sums[piece][tile][i / 8][i % 8];
            }
          }
        }
        if (Tiles::is_first(lane)) {
          partial[ROWS * PADDED + row] = softmax.references.get(lane, tile, column);
          partial[ROWS * PADDED + ROWS + row] = softmax.sum[tile][column];
        }
      }
    }
    unsigned int* const counter = work.arrivals + blockIdx.x * gridDim.y + head;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.arrived_last = atomicAdd(counter, 1u) == static_cast<unsigned int>(shared.parts - 1);
      if (shared.arrived_last) {
        *counter = 0;
      }
    }
    __syncthreads();
    if (!shared.arrived_last) {
      return;
    }
    __threadfence();
    for (int row = threadIdx.x; row < ROWS; row += THREADS) {
      float reference = LOWEST;
      for (int part = 0; part < shared.parts; ++part) {
        reference = fmaxf(reference, load_shared_result(partial_of(work, head, part) + ROWS * PADDED + row));
      }
      float sum = 0;
      for (int part = 0; part < shared.parts; ++part) {
        const float* const other = partial_of(work, head, part) + ROWS * PADDED + row;
        const float factor = power_of_two(load_shared_result(other) - reference);
        sum += factor * load_shared_result(other + ROWS);
        factors[part * ROWS + row] = factor;
      }
      shared.references[row] = 1 / with_sink(work, head, first_row + row, reference, sum);
    }
    __syncthreads();
    const int rows = min(ROWS, shared.request.tokens * work.group - first_row);
    for (int quad = threadIdx.x; quad < rows * (PADDED / 4); quad += THREADS) {
      const int row = quad / (PADDED / 4);
      const int dim = quad % (PADDED / 4) * 4;
      float4 sums_of_parts = make_float4(0, 0, 0, 0);
#pragma unroll 4
      for (int part = 0; part < shared.parts; ++part) {
        const float4 more = load_shared_result(reinterpret_cast<const float4*>(partial_of(work, head, part)) + quad);
        const float factor = factors[part * ROWS + row];
        sums_of_parts.x += factor * more.x;
        sums_of_parts.y += factor * more.y;
        sums_of_parts.z += factor * more.z;
        sums_of_parts.w += factor * more.w;
      }
      if (dim < HEAD) {
        const float factor = shared.references[row];
        __half* const out = static_cast<__half*>(work.out) +
                            row_offset<HEAD>(work, shared.request, head, first_row + row, work.out_stride);
        *reinterpret_cast<uint2*>(out + dim) =
            make_uint2(halves_from(sums_of_parts.x * factor, sums_of_parts.y * factor),
                       halves_from(sums_of_parts.z * factor, sums_of_parts.w * factor));
      }
    }
  }

  // Writes a warp's rows, which go through shared memory so that 16 bytes of a row are written at a time.
  __device__ __forceinline__ static void write_rows(const PagedAttention& work, const Request& request, int head,
                                                    int first, int lane, const WarpSoftmax& softmax,
                                                    const float (&sums)[PIECES][TILES][2][8], __half* mine) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int column = 0; column < Tiles::COLUMNS; ++column) {
        const int row = 8 * tile + Tiles::query(lane, column);
        const float factor = 1 / with_sink(work, head, first + row, softmax.references.get(lane, tile, column),
                                           softmax.sum[tile][column]);
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
#pragma unroll
          for (int i = 0; i < 16; ++i) {
            if (Tiles::column(i % 8) == column) {
              mine[row * PADDED + PIECE_DIMS * piece + Tiles::sum_dim(lane, i / 8, i % 8)] =
                  __float2half_rn(sums[piece][tile][i / 8][i % 8] * factor);
            }
          }
        }
      }
    }
    meet_warp();
    const uint4* const parts = reinterpret_cast<const uint4*>(mine);
    for (int i = lane; i < WARP_ROWS * (PADDED / 8); i += 32) {
      const int row = i / (PADDED / 8);
      const int dims = i % (PADDED / 8);
      if (first + row < request.tokens * work.group && 8 * dims < HEAD) {
        __half* const out =
            static_cast<__half*>(work.out) + row_offset<HEAD>(work, request, head, first + row, work.out_stride);
        reinterpret_cast<uint4*>(out)[dims] = parts[i];
      }
    }
  }
};

#define VOLTA_TILED_KERNEL(NAME, TILES, HEAD)                       \
  extern "C" __global__ void __launch_bounds__(32 * TILED_WARPS, 1) \
      attention_tiled_##NAME##_##HEAD(const PagedAttention work) {  \
    TiledAttention<TILES, HEAD>::run(work);                         \
  }
#define VOLTA_TILED_KERNELS(NAME, TILES) \
  VOLTA_TILED_KERNEL(NAME, TILES, 64)    \
  VOLTA_TILED_KERNEL(NAME, TILES, 80)    \
  VOLTA_TILED_KERNEL(NAME, TILES, 96)    \
  VOLTA_TILED_KERNEL(NAME, TILES, 128)   \
  VOLTA_TILED_KERNEL(NAME, TILES, 256)   \
  VOLTA_TILED_KERNEL(NAME, TILES, 512)

VOLTA_TILED_KERNELS(quad_pairs, QuadPairTiles)
VOLTA_TILED_KERNELS(octets, OctetTiles)

}  // namespace vllm_volta

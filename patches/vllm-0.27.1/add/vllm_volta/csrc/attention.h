// The paged KV cache as the kernels for attention want it, and what these kernels are given.
//
// vLLM's block of the cache, for one KV head, is a run of block_size * 2 * head_size fp16 numbers. It holds groups of
// 16 tokens, one after the other; a group has its keys first, eight dimensions of all tokens after the other, then its
// values, one token after the other (d = head_size):
//
//   keys      token 0, dims 0-7 | token 1, dims 0-7 | ... | token 15, dims 0-7      16 * 8 numbers
//             token 0, dims 8-15 | ...              | ... | token 15, dims 8-15
//             ...                                                                   d / 8 such rows
//   values    token 0, dims 0 to d - 1                                              d numbers
//             ...
//             token 15, dims 0 to d - 1                                             16 such rows
//
// A lane of a warp that multiplies keys has a key of its own, whole, so 16 lanes read 256 contiguous bytes; of values
// it has some dimensions of some tokens, so eight lanes read 128 contiguous bytes. Both then are fragments of the
// tensor cores at once, without shared memory between.
//
// Rows are what is multiplied with the keys of one KV head: the queries of all heads of its group and of all tokens of
// a request, row = token * group + head in the group. They share what is read of the cache.

#pragma once

// Functions that the host and the device call.
#if defined(__CUDACC__)
  #define VOLTA_ANYWHERE __host__ __device__
#else
  #define VOLTA_ANYWHERE
#endif

namespace vllm_volta {

constexpr int CACHE_GROUP = 16;  // tokens of a group
constexpr int TILE_KEYS = 32;    // keys that a warp multiplies at a time
constexpr int PIECE_DIMS = 64;   // of so many dimensions at a time

// Head sizes that there are kernels for.
constexpr int HEAD_SIZES[] = {64, 80, 96, 128, 256, 512};
VOLTA_ANYWHERE constexpr int pieces_of(int head_size) { return (head_size + PIECE_DIMS - 1) / PIECE_DIMS; }
VOLTA_ANYWHERE constexpr int padded_head_size(int head_size) { return pieces_of(head_size) * PIECE_DIMS; }

// Split attention (for few rows and many keys): the keys of a row are dealt out to thread blocks of four warps.
constexpr int SPLIT_WARPS = 4;
constexpr int SPLIT_UNIT = SPLIT_WARPS * TILE_KEYS;  // keys: the least that a block gets
constexpr int MOST_SPLIT_BLOCKS = 1024;              // blocks that work, however many are started
// Tiled attention (for many rows): a thread block of eight warps has so many rows, and all of their keys.
constexpr int TILED_WARPS = 8;
// Where there are fewer such blocks than multiprocessors, up to so many share the keys of the same rows, each of them
// at least so many tiles of keys.
constexpr int MOST_TILED_PARTS = 16;
constexpr int LEAST_TILES_OF_PART = 8;
VOLTA_ANYWHERE constexpr int tiled_rows_of_warp(int head_size) {
  return head_size <= 128 ? 32 : head_size <= 256 ? 16 : 8;
}
VOLTA_ANYWHERE constexpr int tiled_rows(int head_size) { return TILED_WARPS * tiled_rows_of_warp(head_size); }

// Shared memory of tiled attention. Queries: eight dimensions of all rows after the other, two rows more between, so
// that fragments fall into different banks. Two pieces of keys or values. Exponentials: 32 keys of each row of a warp.
constexpr int STAGED_KEYS = TILE_KEYS + 2;
constexpr int STAGED_VALUE_BYTES = PIECE_DIMS * 2 + 32;
constexpr int STAGED_PIECE_BYTES = TILE_KEYS * STAGED_VALUE_BYTES;
constexpr int EXPONENTIALS_STRIDE = TILE_KEYS + 4;
VOLTA_ANYWHERE constexpr int query_bytes(int rows, int padded) { return padded / 8 * (rows + 2) * 16; }
VOLTA_ANYWHERE constexpr int exponentials_bytes(int rows) { return rows * EXPONENTIALS_STRIDE * 2; }
VOLTA_ANYWHERE constexpr int tiled_shared_bytes(int head_size) {
  return query_bytes(tiled_rows(head_size), padded_head_size(head_size)) + 2 * STAGED_PIECE_BYTES +
         exponentials_bytes(tiled_rows(head_size));
}

// The kernels' only parameter. All pointers are the device's; strides in fp16 numbers.
struct PagedAttention {
  const void* query;       // fp16 [tokens, heads, head_size]: heads contiguous, 16-byte aligned rows
  void* out;               // fp16 [tokens, heads, head_size], likewise
  const void* cache;       // fp16, as above
  const int* block_table;  // [requests, block_table_stride]: numbers of blocks
  const int* query_start;  // [requests + 1]: the first token of each request, counted over the whole batch
  const int* lengths;      // [requests]: tokens in the cache, those of this step included; 0: no request
  const float* sinks;      // [heads] or null: a logit more in the sum of each row, without a value
  const float* slopes;     // [heads] or null: ALiBi
  const int* ranges;       // [requests, most_ranges, 2] or null: first and last position of tokens that see each other
  float* partial;          // of blocks that share rows: partial_floats() or tiled_partial_floats() of them
  unsigned int* arrivals;  // zeros before and after: arrival_counters() of them
  long long query_stride;  // from token to token
  long long out_stride;
  long long block_stride;  // from block to block
  long long head_stride;   // from KV head to KV head within a block
  int block_table_stride;
  int requests;
  int kv_heads;
  int group;  // query heads of a KV head
  int head_size;
  int block_size;  // a multiple of CACHE_GROUP
  int window;      // a token sees so many keys, its own included; 0: all
  int most_ranges;
  int clamp_ranges;  // 1: the window holds for keys of ranges too (Gemma 4), 0: ranges come on top of it
  float scale;       // of logits
  float soft_cap;    // logits become soft_cap * tanh(logit / soft_cap); 0: they stay
};

// What a thread block has of `rows` rows that others have too: sums by dimension, then the largest logit (times log2 e)
// and the sum of exponentials of each row.
VOLTA_ANYWHERE constexpr int result_floats(int rows, int padded) { return rows * (padded + 2); }

// Two results for each thread block of split attention, of up to `rows` (8 or 16) rows each.
VOLTA_ANYWHERE constexpr long long partial_floats(int blocks, int rows, int padded) {
  return 2ll * blocks * result_floats(rows, padded);
}

// One result for each thread block of tiled attention that shares rows; they are not more than the multiprocessors.
VOLTA_ANYWHERE constexpr long long tiled_partial_floats(int multiprocessors, int head_size) {
  return static_cast<long long>(multiprocessors) * result_floats(tiled_rows(head_size), padded_head_size(head_size));
}

// How many blocks share the keys of the same rows: the third dimension of the grid, if the first two have `blocks`.
VOLTA_ANYWHERE constexpr int tiled_parts(long long blocks, int multiprocessors) {
  const long long parts = blocks > 0 ? multiprocessors / blocks : 1;
  return static_cast<int>(parts < 1 ? 1 : parts > MOST_TILED_PARTS ? MOST_TILED_PARTS : parts);
}

// Split attention counts arrivals at both results of each thread block, and for each KV head, request and tile of
// `rows` rows. Tiled attention counts them where the former are, for each block of rows and KV head.
VOLTA_ANYWHERE constexpr long long arrival_counters(int tokens, int requests, int kv_heads, int group, int rows) {
  return 2 * MOST_SPLIT_BLOCKS +
         static_cast<long long>(kv_heads) * (static_cast<long long>(tokens) * group / rows + requests + 1);
}

// Thread blocks of tiled attention for each KV head, at the least so many as have work.
VOLTA_ANYWHERE constexpr long long tiled_blocks(int tokens, int requests, int group, int head_size) {
  return static_cast<long long>(tokens) * group / tiled_rows(head_size) + requests;
}

// New keys and values on their way into the cache.
struct CacheWrite {
  const void* key;    // fp16 [tokens, kv_heads, head_size]: heads contiguous
  const void* value;  // fp16 [tokens, kv_heads, head_size]
  void* cache;
  const long long* slots;  // [tokens]: block * block_size + place in the block; negative: the token is left out
  long long key_stride;    // from token to token
  long long value_stride;
  long long block_stride;
  long long head_stride;
  int tokens;
  int kv_heads;
  int head_size;
  int block_size;
};

}  // namespace vllm_volta

#include <array>

#include "host_warp.h"

namespace host_cuda {

namespace {

std::array<float, 65536> all_halves() {
  std::array<float, 65536> values;
  for (unsigned int bits = 0; bits < values.size(); ++bits) {
    values[bits] = __half2float(vllm_volta::halves_of(bits).x);
  }
  return values;
}

const std::array<float, 65536> VALUES = all_halves();

// Number i of the fp16 numbers in a fragment's registers.
inline float half_of(const unsigned int* registers, int i) {
  return VALUES[registers[i / 2] >> (16 * (i % 2)) & 0xffffu];
}

// sums [M, N] += a [M, K] b [K, N]
template <int M, int N, int K>
void multiply(float (&sums)[M][N], const float (&a)[M][K], const float (&b)[K][N]) {
  for (int row = 0; row < M; ++row) {
    for (int k = 0; k < K; ++k) {
      for (int column = 0; column < N; ++column) {
        sums[row][column] += a[row][k] * b[k][column];
      }
    }
  }
}

// One instruction mma.m8n8k4 of the quad pair whose lanes are 4 * pair + 0 to 3 and 16 more.
template <bool A_BY_COLUMNS>
void multiply_quad_pair(const Operands (&lanes)[WARP], int pair) {
  float a[8][4], b[4][8], sums[8][8];
  const auto each = [&](auto visit) {
    for (int lane : {0, 1, 2, 3, 16, 17, 18, 19}) {
      visit(lane, lanes[4 * pair + lane]);
    }
  };
  const auto sum_at = [&](int lane, int i) -> float& {
    const int row = (lane & 1) + (i & 2) + (lane < 16 ? 0 : 4);
    const int column = (i & 4) + (lane & 2) + (i & 1);
    return sums[row][column];
  };
  each([&](int lane, const Operands& mine) {
    const int first = lane < 16 ? 0 : 4;
    const int row_or_column = lane % 4 + first;
    for (int i = 0; i < 4; ++i) {
      (A_BY_COLUMNS ? a[first + i][lane % 4] : a[row_or_column][i]) = half_of(mine.a, i);
      b[i][row_or_column] = half_of(mine.b, i);
    }
    for (int i = 0; i < 8; ++i) {
      sum_at(lane, i) = mine.sums[i];
    }
  });
  multiply(sums, a, b);
  each([&](int lane, const Operands& mine) {
    for (int i = 0; i < 8; ++i) {
      mine.sums[i] = sum_at(lane, i);
    }
  });
}

// One instruction mma.m16n8k16 with the registers 4 * half + 0 to 3 of a and the sums 4 * half + 0 to 3.
void multiply_half(const Operands (&lanes)[WARP], int half) {
  float a[16][16], b[16][8], sums[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4;
    const int in_group = lane % 4;
    for (int i = 0; i < 8; ++i) {
      const int row = group + (i < 2 || (i >= 4 && i < 6) ? 0 : 8);
      const int column = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
      a[row][column] = half_of(lanes[lane].a + 4 * half, i);
    }
    for (int i = 0; i < 4; ++i) {
      b[in_group * 2 + (i & 1) + (i < 2 ? 0 : 8)][group] = half_of(lanes[lane].b, i);
      sums[group + (i < 2 ? 0 : 8)][in_group * 2 + (i & 1)] = lanes[lane].sums[4 * half + i];
    }
  }
  multiply(sums, a, b);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      lanes[lane].sums[4 * half + i] = sums[lane / 4 + (i < 2 ? 0 : 8)][lane % 4 * 2 + (i & 1)];
    }
  }
}

}  // namespace

void multiply_quad_pairs(const Operands (&lanes)[WARP]) {
  for (int pair = 0; pair < 4; ++pair) {
    multiply_quad_pair<false>(lanes, pair);
  }
}

void multiply_quad_pairs_columns(const Operands (&lanes)[WARP]) {
  for (int pair = 0; pair < 4; ++pair) {
    multiply_quad_pair<true>(lanes, pair);
  }
}

void multiply_halves(const Operands (&lanes)[WARP]) {
  multiply_half(lanes, 0);
  multiply_half(lanes, 1);
}

void exchange(const Operands (&lanes)[WARP]) {
  float before[WARP];
  for (unsigned int lane = 0; lane < WARP; ++lane) {
    before[lane] = *lanes[lane].sums;
  }
  for (const Operands& lane : lanes) {
    *lane.sums = before[*lane.a % WARP];
  }
}

void vote(const Operands (&lanes)[WARP]) {
  unsigned int found = 0;
  for (unsigned int lane = 0; lane < WARP; ++lane) {
    found |= *lanes[lane].a << lane;
  }
  for (const Operands& lane : lanes) {
    *lane.sums = same_bits<float>(found);
  }
}

}  // namespace host_cuda

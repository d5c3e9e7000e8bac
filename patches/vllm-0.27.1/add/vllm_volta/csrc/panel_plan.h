// How a multiplication with panels (panels.h) is cut into thread blocks. Plain C++ without headers: the same inputs give
// the same plan on every machine, and so do tests without a GPU.

#pragma once

#include "panels.h"

namespace vllm_volta {

// The kernels, by how many tokens they take at most.
constexpr int PANEL_KERNELS = 4;
constexpr int PANEL_TOKENS[PANEL_KERNELS] = {1, 8, 16, 32};
static_assert(PANEL_TOKENS[PANEL_KERNELS - 1] == MOST_PANEL_TOKENS, "the last kernel takes the most tokens");

// How a kernel for panels is started.
struct PanelPlan {
  int kernel;  // which of PANEL_TOKENS
  int blocks;

  // Floats that PanelMatmul::partial must hold.
  constexpr long long partial_values() const {
    return 2ll * blocks * PANEL_TOKENS[kernel] * PANEL_ROWS * PANEL_WARPS;
  }
};

constexpr long long ceil_of_division(long long value, long long unit) { return (value + unit - 1) / unit; }

// The first kernel that takes m tokens, m from 1 to MOST_PANEL_TOKENS.
constexpr int panel_kernel(int m) {
  int kernel = 0;
  while (PANEL_TOKENS[kernel] < m) {
    ++kernel;
  }
  return kernel;
}

// As many thread blocks as run at once: `resident` on each of `multiprocessors`. None is without a unit of work, and
// units * blocks stays below 2^32.
constexpr PanelPlan plan_panels(int m, int n, int k, int multiprocessors, int resident) {
  constexpr long long LIMIT = (1ll << 32) - 1;
  const long long units = ceil_of_division(n, PANEL_ROWS * PANEL_WARPS) * ceil_of_division(k, PANEL_COLUMNS);
  long long blocks = static_cast<long long>(multiprocessors) * resident;
  blocks = units < blocks ? units : blocks;
  blocks = LIMIT / units < blocks ? LIMIT / units : blocks;
  return {panel_kernel(m), static_cast<int>(blocks)};
}

}  // namespace vllm_volta

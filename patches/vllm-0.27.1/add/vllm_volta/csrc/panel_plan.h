// How a multiplication with panels (panels.h) is cut into thread blocks. Plain C++ without headers: the same inputs
// give the same plan on every machine, in tests without a GPU too.

#pragma once

#include "panels.h"

namespace vllm_volta {

// How the weights in panels are coded.
enum Format : int { NVFP4 = 0, FP8 = 1 };

// How many tokens the kernels take at most: 1, 8, 16, ... MOST_PANEL_TOKENS.
constexpr int panel_tokens(int kernel) { return kernel == 0 ? 1 : 8 << (kernel - 1); }

// The first kernel that takes m tokens, m from 1 to MOST_PANEL_TOKENS.
constexpr int panel_kernel(int m) {
  int kernel = 0;
  while (panel_tokens(kernel) < m) {
    ++kernel;
  }
  return kernel;
}

constexpr int PANEL_KERNELS = panel_kernel(MOST_PANEL_TOKENS) + 1;

// How a kernel for panels is started.
struct PanelPlan {
  int kernel;  // by its number
  int blocks;

  // Floats that PanelMatmul::partial must hold.
  constexpr long long partial_values() const {
    return 2ll * blocks * panel_tokens(kernel) * PANEL_ROWS * PANEL_WARPS;
  }
};

constexpr long long ceil_of_division(long long value, long long unit) { return (value + unit - 1) / unit; }

// Rounded up.
constexpr long long root_of(long long value) {
  long long root = 1;
  while (root * root < value) {
    ++root;
  }
  return root;
}

// As many thread blocks as run at once: `resident` on each of `multiprocessors`. None is without a unit of work, and
// units * blocks stays below 2^32. A block of rows with p panels of columns is not cut into more than sqrt(2 p) parts:
// multiplying p / parts panels, one after the other, takes about half as long for a panel as adding up what one of the
// parts has (measured on an H200), and the sum of both is smallest there.
constexpr PanelPlan plan_panels(int m, int n, int k, int multiprocessors, int resident) {
  constexpr long long LIMIT = (1ll << 32) - 1;
  const long long panels = ceil_of_division(k, PANEL_COLUMNS);
  const long long row_blocks = ceil_of_division(n, PANEL_ROWS * PANEL_WARPS);
  const long long units = row_blocks * panels;
  const long long most = row_blocks * root_of(2 * panels);
  long long blocks = static_cast<long long>(multiprocessors) * resident;
  blocks = most < blocks ? most : blocks;
  blocks = units < blocks ? units : blocks;
  blocks = LIMIT / units < blocks ? LIMIT / units : blocks;
  return {panel_kernel(m), static_cast<int>(blocks)};
}

}  // namespace vllm_volta

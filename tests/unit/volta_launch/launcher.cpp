// The launcher of vllm_volta for a test: one call that plans and starts a kernel, with its error as text.

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

const char* ask_fragments(int device, int* out) {
  return text_of_error([=] { *out = fragments_of(device); });
}
}

#include "launch.h"

#include <cstdlib>
#include <string>

#include "driver.h"
#include "kernels.h"

namespace vllm_volta {

Fragments fragments_of(int device) {
  const int capability = capability_of(device);
  const char* chosen = std::getenv("VLLM_VOLTA_FRAGMENTS");
  if (chosen == nullptr || *chosen == '\0') {
    return capability < FIRST_WITH_OCTETS ? QUAD_PAIRS : OCTETS;
  }
  const std::string name = chosen;
  if (name == "quad-pairs") {
    return QUAD_PAIRS;
  }
  if (name != "octets") {
    throw LaunchError("VLLM_VOLTA_FRAGMENTS must be quad-pairs or octets, it is " + name);
  }
  check_fragments(OCTETS, capability);
  return OCTETS;
}

PanelPlan plan_panel_matmul(int device, Format format, Fragments fragments, int m, int n, int k) {
  Device& found = device_of(device);
  check_fragments(fragments, found);
  const int kernel = matmul_number(format, fragments, panel_kernel(m));
  return plan_panels(m, n, k, multiprocessors_of(found), resident_blocks(found, kernel));
}

void launch_panel_matmul(int device, Format format, Fragments fragments, const PanelPlan& plan, const PanelMatmul& work,
                         void* stream) {
  Device& found = device_of(device);
  check_fragments(fragments, found);
  void* parameters[] = {const_cast<PanelMatmul*>(&work)};
  start(found, matmul_number(format, fragments, plan.kernel), {plan.blocks}, parameters,
        {{"m", work.m}, {"n", work.n}, {"k", work.k}}, stream);
}

void launch_panel_dequantize(int device, Format format, Fragments fragments, const PanelDequantize& work,
                             void* stream) {
  Device& found = device_of(device);
  check_fragments(fragments, found);
  const long long panels =
      ceil_of_division(work.last - work.first, PANEL_ROWS) * ceil_of_division(work.k, PANEL_COLUMNS);
  void* parameters[] = {const_cast<PanelDequantize*>(&work)};
  start(found, dequantize_number(format, fragments), {striding_blocks(found, panels, DEQUANTIZE_WARPS)}, parameters,
        {{"first", work.first}, {"last", work.last}, {"k", work.k}}, stream);
}

void launch_dequantize_nvfp4(int device, const void* packed, const void* block_scale, const float* global_scale,
                             void* out, long long blocks, void* stream) {
  Device& found = device_of(device);
  void* parameters[] = {&packed, &block_scale, &global_scale, &out, &blocks};
  start(found, DEQUANTIZE_NVFP4, {striding_blocks(found, blocks, ROW_THREADS)}, parameters, {{"blocks", blocks}},
        stream);
}

void launch_dequantize_fp8(int device, const void* weight, const float* scale, void* out, int rows, int columns,
                           int block_rows, int block_columns, void* stream) {
  Device& found = device_of(device);
  const bool aligned = columns % 16 == 0 && block_columns % 16 == 0;
  const long long values = static_cast<long long>(rows) * columns;
  void* parameters[] = {&weight, &scale, &out, &rows, &columns, &block_rows, &block_columns};
  start(found, aligned ? DEQUANTIZE_FP8 : DEQUANTIZE_FP8_UNALIGNED,
        {striding_blocks(found, aligned ? values / 16 : values, ROW_THREADS)}, parameters,
        {{"n", rows}, {"k", columns}}, stream);
}

}  // namespace vllm_volta

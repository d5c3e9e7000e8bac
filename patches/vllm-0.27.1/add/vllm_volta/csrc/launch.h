// Starts the kernels of the embedded device code (device_code.h). Host code alone: it is the same for every GPU.
//
// Any thread may call these functions, with the device current as torch's guard makes it; they may be part of what a
// CUDA graph captures (kernels.h). All of them raise LaunchError (driver.h); all pointers in their parameters are the
// device's, `stream` is a cudaStream_t.

#pragma once

#include "panel_plan.h"
#include "panels.h"

namespace vllm_volta {

// The fragments that fit a device: OCTETS from compute capability 8.0 on, unless VLLM_VOLTA_FRAGMENTS is quad-pairs,
// which run everywhere. Raises LaunchError for another value, or octets below 8.0.
Fragments fragments_of(int device);

// How m tokens (1 to MOST_PANEL_TOKENS) are multiplied with a weight [n, k].
PanelPlan plan_panel_matmul(int device, Format format, Fragments fragments, int m, int n, int k);

void launch_panel_matmul(int device, Format format, Fragments fragments, const PanelPlan& plan, const PanelMatmul& work,
                         void* stream);

void launch_panel_dequantize(int device, Format format, Fragments fragments, const PanelDequantize& work, void* stream);

// Weights row by row (dequantize.cuh). packed, out: aligned to 16 bytes. blocks: groups of 16 values.
void launch_dequantize_nvfp4(int device, const void* packed, const void* block_scale, const float* global_scale,
                             void* out, long long blocks, void* stream);

// weight, out: aligned to 16 bytes. block_rows, block_columns: the tile that shares one scale, at least 1 each.
void launch_dequantize_fp8(int device, const void* weight, const float* scale, void* out, int rows, int columns,
                           int block_rows, int block_columns, void* stream);

}  // namespace vllm_volta

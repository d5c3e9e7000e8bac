// The operators of torch.ops.vllm_volta for weights; attention_bindings.cpp has those for attention. Written against
// torch's stable interface, as the extensions of vLLM 0.27.1 are: a build for one torch release serves the later ones.

#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "decode.h"
#include "launch.h"
#include "panel_plan.h"
#include "panels.h"
#include "tensors.h"

namespace vllm_volta {

namespace {

void check_size(int64_t n, int64_t k) {
  STD_TORCH_CHECK(n > 0 && k > 0 && n <= MOST && k <= MOST, "the weight must have between 1 and ", MOST,
                  " rows and columns, it has ", n, " and ", k);
}

bool holds_bytes_or_e4m3(const Tensor& tensor) {
  return tensor.scalar_type() == ScalarType::Byte || tensor.scalar_type() == ScalarType::Float8_e4m3fn;
}

Place weights_gpu(int32_t device) { return {device, "weight"}; }

// The panels of a weight of `groups` times 32 rows and k columns; 16 bytes at a time are read.
const void* panels_of(const Tensor& codes, int32_t device, Format format, int64_t groups, int64_t k) {
  const int64_t bytes = format == NVFP4 ? NVFP4_PANEL_BYTES : FP8_PANEL_BYTES;
  // Rows of x and of a dequantised weight are read and written in pieces of 8 values; NVFP4 has blocks of 16.
  const int64_t step = format == NVFP4 ? NVFP4_BLOCK : 8;
  STD_TORCH_CHECK(k % step == 0, "k must be a multiple of ", step, ", it is ", k);
  const void* data = data_of(codes, "codes", ScalarType::Byte, weights_gpu(device),
                             {groups, ceil_of_division(k, PANEL_COLUMNS), bytes});
  check_aligned(data, "codes");
  return data;
}

const void* scales_of(const Tensor& scales, int32_t device, int64_t groups, int64_t k) {
  const void* data = data_of(scales, "scales", ScalarType::Byte, weights_gpu(device),
                             {groups, ceil_of_division(k, PANEL_COLUMNS), PANEL_SCALE_BYTES});
  check_aligned(data, "scales");
  return data;
}

// The scales of blocks of an FP8 weight of n rows, null where it has none.
const void* block_scale_of(const std::optional<Tensor>& block_scale, int32_t device, int64_t n, int64_t k,
                           int64_t block_n, int64_t block_k) {
  if (!block_scale.has_value()) {
    STD_TORCH_CHECK(block_n == 0 && block_k == 0, "without block_scale, block_n and block_k must be 0, they are ",
                    block_n, " and ", block_k);
    return nullptr;
  }
  STD_TORCH_CHECK(block_n > 0 && block_n <= MOST && block_n % PANEL_ROWS == 0 && block_k > 0 && block_k <= MOST &&
                      block_k % PANEL_COLUMNS == 0,
                  "block_n and block_k must be multiples of ", PANEL_ROWS, " and ", PANEL_COLUMNS, ", they are ",
                  block_n, " and ", block_k);
  return data_of(*block_scale, "block_scale", ScalarType::Float, weights_gpu(device),
                 {ceil_of_division(n, block_n), ceil_of_division(k, block_k)});
}

// out = x w^T for the weight that `work` describes by codes, scales, n, k and blocks; fills in the rest.
Tensor multiply(const Tensor& x, const Tensor& row_scale, const std::optional<Tensor>& bias, const Tensor& arrivals,
                int32_t device, Format format, Fragments fragments, PanelMatmul work) {
  check_place(x, "x", weights_gpu(device));
  check_type(x, "x", ScalarType::Half);
  STD_TORCH_CHECK(x.dim() == 2 && x.size(1) == work.k, "x must be [m, ", work.k, "], it is ", shape_of(x));
  const int64_t m = x.size(0);
  STD_TORCH_CHECK(x.stride(1) == 1 && (m <= 1 || x.stride(0) % 8 == 0),
                  "rows of x must be contiguous and start a multiple of 8 values apart, its strides are ", x.stride(0),
                  " and ", x.stride(1));
  const int64_t n = work.n;
  STD_TORCH_CHECK(ceil_of_division(n, PANEL_ROWS) * ceil_of_division(work.k, PANEL_COLUMNS) <= MOST,
                  "the weight is too large for the kernels: ", n, " rows of ", work.k);
  work.row_scale =
      static_cast<const float*>(data_of(row_scale, "row_scale", ScalarType::Float, weights_gpu(device), {n}));
  work.bias = bias.has_value() ? data_of(*bias, "bias", ScalarType::Half, weights_gpu(device), {n}) : nullptr;
  check_plain(arrivals, "arrivals", weights_gpu(device));
  const int64_t row_blocks = ceil_of_division(n, PANEL_ROWS * PANEL_WARPS);
  STD_TORCH_CHECK(arrivals.scalar_type() == ScalarType::Int && arrivals.dim() == 1 && arrivals.size(0) >= row_blocks,
                  "arrivals must hold at least ", row_blocks, " int32, it is ", shape_of(arrivals));

  Tensor out = torch::stable::new_empty(x, {m, n}, ScalarType::Half);
  if (m == 0) {
    return out;
  }
  const auto* rows = static_cast<const char*>(x.const_data_ptr());
  check_aligned(rows, "x");
  const torch::stable::accelerator::DeviceGuard guard(device);
  const auto plan_for = [&](int64_t tokens) {
    return plan_panel_matmul(device, format, fragments, static_cast<int>(tokens), work.n, work.k);
  };
  const int64_t slice = std::min<int64_t>(m, MOST_PANEL_TOKENS);
  const int64_t rest = m % slice == 0 ? slice : m % slice;
  const PanelPlan slice_plan = plan_for(slice);
  const PanelPlan rest_plan = rest == slice ? slice_plan : plan_for(rest);
  const int64_t values = std::max(slice_plan.partial_values(), rest_plan.partial_values());
  Tensor partial = torch::stable::new_empty(x, {values}, ScalarType::Float);

  work.partial = static_cast<float*>(partial.mutable_data_ptr());
  // Zero again when the kernel ends: to torch, the tensor does not change.
  work.arrivals = static_cast<unsigned int*>(arrivals.data_ptr());
  work.x_stride = x.stride(0);
  work.out_stride = n;
  auto* results = static_cast<char*>(out.mutable_data_ptr());
  void* stream = current_stream(device);
  for (int64_t first = 0; first < m; first += slice) {
    const bool whole = first + slice <= m;
    const PanelPlan& plan = whole ? slice_plan : rest_plan;
    work.m = static_cast<int>(whole ? slice : rest);
    work.x = rows + 2 * first * work.x_stride;
    work.out = results + 2 * first * n;
    launch_panel_matmul(device, format, fragments, plan, work, stream);
  }
  return out;
}

// Rows first to last as fp16, of the weight that `work` describes by codes, scales, k and blocks.
Tensor dequantize(const Tensor& codes, int32_t device, Format format, Fragments fragments, int64_t first, int64_t last,
                  PanelDequantize work) {
  const torch::stable::accelerator::DeviceGuard guard(device);
  Tensor out = torch::stable::new_empty(codes, {last - first, work.k}, ScalarType::Half);
  if (first < last) {
    work.out = out.mutable_data_ptr();
    work.first = static_cast<int>(first);
    work.last = static_cast<int>(last);
    launch_panel_dequantize(device, format, fragments, work, current_stream(device));
  }
  return out;
}

void check_rows(int64_t first, int64_t last, int64_t rows) {
  STD_TORCH_CHECK(0 <= first && first <= last && last <= rows && first % PANEL_ROWS == 0,
                  "first and last must be rows of the weight (0 to ", rows, "), first a multiple of ", PANEL_ROWS,
                  ", they are ", first, " and ", last);
}

}  // namespace

Tensor dequantize_nvfp4(const Tensor& packed, const Tensor& block_scale, const Tensor& global_scale, int64_t n,
                        int64_t k) {
  check_size(n, k);
  STD_TORCH_CHECK(k % NVFP4_BLOCK == 0, "k must be a multiple of ", NVFP4_BLOCK, ", it is ", k);
  const int32_t device = packed.get_device_index();
  check_plain(packed, "packed", weights_gpu(device));
  check_plain(block_scale, "block_scale", weights_gpu(device));
  check_plain(global_scale, "global_scale", weights_gpu(device));
  check_shape(packed, "packed", {n, k / 2});
  check_shape(block_scale, "block_scale", {n, k / NVFP4_BLOCK});
  check_type(packed, "packed", ScalarType::Byte);
  STD_TORCH_CHECK(holds_bytes_or_e4m3(block_scale), "block_scale must hold float8_e4m3fn or its bytes");
  STD_TORCH_CHECK(global_scale.scalar_type() == ScalarType::Float && global_scale.numel() == 1,
                  "global_scale must be one float32, it is ", shape_of(global_scale));
  check_aligned(packed.const_data_ptr(), "packed");

  const torch::stable::accelerator::DeviceGuard guard(device);
  Tensor out = torch::stable::new_empty(packed, {n, k}, ScalarType::Half);
  launch_dequantize_nvfp4(device, packed.const_data_ptr(), block_scale.const_data_ptr(),
                          static_cast<const float*>(global_scale.const_data_ptr()), out.mutable_data_ptr(),
                          n * (k / NVFP4_BLOCK), current_stream(device));
  return out;
}

Tensor dequantize_fp8(const Tensor& weight, const Tensor& scale, int64_t block_n, int64_t block_k) {
  STD_TORCH_CHECK(weight.dim() == 2, "weight must be [n, k], it is ", shape_of(weight));
  const int64_t n = weight.size(0);
  const int64_t k = weight.size(1);
  check_size(n, k);
  const int32_t device = weight.get_device_index();
  check_plain(weight, "weight", weights_gpu(device));
  check_plain(scale, "scale", weights_gpu(device));
  STD_TORCH_CHECK(holds_bytes_or_e4m3(weight), "weight must hold float8_e4m3fn or its bytes");
  check_type(scale, "scale", ScalarType::Float);
  STD_TORCH_CHECK((block_n > 0) == (block_k > 0) && block_n >= 0 && block_k >= 0 && block_n <= MOST && block_k <= MOST,
                  "block_n and block_k must both be 0 or both be positive, they are ", block_n, " and ", block_k);
  if (block_n > 0) {
    check_shape(scale, "scale", {ceil_of_division(n, block_n), ceil_of_division(k, block_k)});
  } else {
    STD_TORCH_CHECK(scale.numel() == 1 || scale.numel() == n,
                    "without blocks, scale must hold one value or one per row of the weight (", n, "), it is ",
                    shape_of(scale));
    block_n = scale.numel() == 1 ? n : 1;
    // A multiple of 16 that no column reaches, so that the whole row has one scale whatever its length.
    block_k = (k + 15) / 16 * 16;
  }
  check_aligned(weight.const_data_ptr(), "weight");

  const torch::stable::accelerator::DeviceGuard guard(device);
  Tensor out = torch::stable::new_empty(weight, {n, k}, ScalarType::Half);
  launch_dequantize_fp8(device, weight.const_data_ptr(), static_cast<const float*>(scale.const_data_ptr()),
                        out.mutable_data_ptr(), static_cast<int>(n), static_cast<int>(k), static_cast<int>(block_n),
                        static_cast<int>(block_k), current_stream(device));
  return out;
}

Tensor nvfp4_panels(const Tensor& x, const Tensor& codes, const Tensor& scales, const Tensor& row_scale,
                    const std::optional<Tensor>& bias, const Tensor& arrivals, int64_t n, int64_t k,
                    int64_t fragments) {
  check_size(n, k);
  const int32_t device = codes.get_device_index();
  const int64_t groups = ceil_of_division(n, PANEL_ROWS);
  PanelMatmul work{};
  work.codes = panels_of(codes, device, NVFP4, groups, k);
  work.scales = scales_of(scales, device, groups, k);
  work.n = static_cast<int>(n);
  work.k = static_cast<int>(k);
  return multiply(x, row_scale, bias, arrivals, device, NVFP4, fragments_of_number(fragments), work);
}

Tensor fp8_panels(const Tensor& x, const Tensor& codes, const std::optional<Tensor>& block_scale,
                  const Tensor& row_scale, const std::optional<Tensor>& bias, const Tensor& arrivals, int64_t n,
                  int64_t k, int64_t block_n, int64_t block_k, int64_t fragments) {
  check_size(n, k);
  const int32_t device = codes.get_device_index();
  PanelMatmul work{};
  work.codes = panels_of(codes, device, FP8, ceil_of_division(n, PANEL_ROWS), k);
  work.scales = block_scale_of(block_scale, device, n, k, block_n, block_k);
  work.n = static_cast<int>(n);
  work.k = static_cast<int>(k);
  work.block_rows = static_cast<int>(block_n);
  work.block_columns = static_cast<int>(block_k);
  return multiply(x, row_scale, bias, arrivals, device, FP8, fragments_of_number(fragments), work);
}

Tensor dequantize_nvfp4_panels(const Tensor& codes, const Tensor& scales, int64_t first, int64_t last, int64_t k,
                               int64_t fragments) {
  STD_TORCH_CHECK(codes.dim() == 3, "codes must be [groups, panels, bytes], it is ", shape_of(codes));
  const int64_t groups = codes.size(0);
  check_size(groups * PANEL_ROWS, k);
  check_rows(first, last, groups * PANEL_ROWS);
  const int32_t device = codes.get_device_index();
  PanelDequantize work{};
  work.codes = panels_of(codes, device, NVFP4, groups, k);
  work.scales = scales_of(scales, device, groups, k);
  work.k = static_cast<int>(k);
  return dequantize(codes, device, NVFP4, fragments_of_number(fragments), first, last, work);
}

Tensor dequantize_fp8_panels(const Tensor& codes, const std::optional<Tensor>& block_scale, const Tensor& row_scale,
                             int64_t first, int64_t last, int64_t k, int64_t block_n, int64_t block_k,
                             int64_t fragments) {
  const int64_t n = row_scale.numel();
  check_size(n, k);
  check_rows(first, last, n);
  const int32_t device = codes.get_device_index();
  PanelDequantize work{};
  work.codes = panels_of(codes, device, FP8, ceil_of_division(n, PANEL_ROWS), k);
  work.scales = block_scale_of(block_scale, device, n, k, block_n, block_k);
  work.row_scale =
      static_cast<const float*>(data_of(row_scale, "row_scale", ScalarType::Float, weights_gpu(device), {n}));
  work.k = static_cast<int>(k);
  work.block_rows = static_cast<int>(block_n);
  work.block_columns = static_cast<int>(block_k);
  return dequantize(codes, device, FP8, fragments_of_number(fragments), first, last, work);
}

int64_t panel_fragments(const Tensor& like) { return fragments_of(like.get_device_index()); }

}  // namespace vllm_volta

// A fragment: the package's Python side defines operators in the same namespace.
STABLE_TORCH_LIBRARY_FRAGMENT(vllm_volta, ops) {
  ops.def("dequantize_nvfp4(Tensor packed, Tensor block_scale, Tensor global_scale, int n, int k) -> Tensor");
  ops.def("dequantize_fp8(Tensor weight, Tensor scale, int block_n, int block_k) -> Tensor");
  ops.def(
      "nvfp4_panels(Tensor x, Tensor codes, Tensor scales, Tensor row_scale, Tensor? bias, Tensor arrivals, int n, "
      "int k, int fragments) -> Tensor");
  ops.def(
      "fp8_panels(Tensor x, Tensor codes, Tensor? block_scale, Tensor row_scale, Tensor? bias, Tensor arrivals, int n, "
      "int k, int block_n, int block_k, int fragments) -> Tensor");
  ops.def(
      "dequantize_nvfp4_panels(Tensor codes, Tensor scales, int first, int last, int k, int fragments) -> Tensor");
  ops.def(
      "dequantize_fp8_panels(Tensor codes, Tensor? block_scale, Tensor row_scale, int first, int last, int k, "
      "int block_n, int block_k, int fragments) -> Tensor");
  ops.def("panel_fragments(Tensor like) -> int");
}

STABLE_TORCH_LIBRARY_IMPL(vllm_volta, CUDA, ops) {
  ops.impl("dequantize_nvfp4", TORCH_BOX(&vllm_volta::dequantize_nvfp4));
  ops.impl("dequantize_fp8", TORCH_BOX(&vllm_volta::dequantize_fp8));
  ops.impl("nvfp4_panels", TORCH_BOX(&vllm_volta::nvfp4_panels));
  ops.impl("fp8_panels", TORCH_BOX(&vllm_volta::fp8_panels));
  ops.impl("dequantize_nvfp4_panels", TORCH_BOX(&vllm_volta::dequantize_nvfp4_panels));
  ops.impl("dequantize_fp8_panels", TORCH_BOX(&vllm_volta::dequantize_fp8_panels));
  ops.impl("panel_fragments", TORCH_BOX(&vllm_volta::panel_fragments));
}

// `import vllm_volta._C` loads the operators; the module itself is empty.
PyMODINIT_FUNC PyInit__C() {
  static struct PyModuleDef module = {
      PyModuleDef_HEAD_INIT, "_C", nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&module);
}

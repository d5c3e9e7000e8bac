// The operators of torch.ops.vllm_volta that have code for Volta. Written against torch's stable interface, as the
// extensions of vLLM 0.27.1 are: a build for one torch release serves the later ones.

#include <Python.h>

#include <cstdint>
#include <limits>
#include <string>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/shim_utils.h>

#include "decode.h"
#include "dequantize.h"

namespace vllm_volta {

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// The kernels count rows and columns with int, and columns in steps of 16.
constexpr int64_t MOST = std::numeric_limits<int>::max() - 15;

std::string shape_of(const Tensor& tensor) {
  std::string text = "[";
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    text += (i ? ", " : "") + std::to_string(tensor.size(i));
  }
  return text + "]";
}

void check_plain(const Tensor& tensor, const char* name, int32_t device) {
  STD_TORCH_CHECK(tensor.is_cuda() && tensor.get_device_index() == device, name, " must be on the weight's GPU");
  STD_TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous");
}

void check_shape(const Tensor& tensor, const char* name, int64_t rows, int64_t columns) {
  STD_TORCH_CHECK(tensor.dim() == 2 && tensor.size(0) == rows && tensor.size(1) == columns, name, " must be [", rows,
                  ", ", columns, "], it is ", shape_of(tensor));
}

void check_size(int64_t n, int64_t k) {
  STD_TORCH_CHECK(n > 0 && k > 0 && n <= MOST && k <= MOST, "the weight must have between 1 and ", MOST,
                  " rows and columns, it has ", n, " and ", k);
}

bool holds_bytes_or_e4m3(const Tensor& tensor) {
  return tensor.scalar_type() == ScalarType::Byte || tensor.scalar_type() == ScalarType::Float8_e4m3fn;
}

void check_aligned(const void* pointer, const char* name) {
  STD_TORCH_CHECK(reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0, name, " must be aligned to 16 bytes");
}

cudaStream_t current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<cudaStream_t>(stream);
}

void check_launched(cudaError_t error, const char* kernel) {
  STD_TORCH_CHECK(error == cudaSuccess, kernel, " could not be started: ", cudaGetErrorString(error));
}

}  // namespace

Tensor dequantize_nvfp4(const Tensor& packed, const Tensor& block_scale, const Tensor& global_scale, int64_t n,
                        int64_t k) {
  check_size(n, k);
  STD_TORCH_CHECK(k % NVFP4_BLOCK == 0, "k must be a multiple of ", NVFP4_BLOCK, ", it is ", k);
  const int32_t device = packed.get_device_index();
  check_plain(packed, "packed", device);
  check_plain(block_scale, "block_scale", device);
  check_plain(global_scale, "global_scale", device);
  check_shape(packed, "packed", n, k / 2);
  check_shape(block_scale, "block_scale", n, k / NVFP4_BLOCK);
  STD_TORCH_CHECK(packed.scalar_type() == ScalarType::Byte, "packed must hold uint8");
  STD_TORCH_CHECK(holds_bytes_or_e4m3(block_scale), "block_scale must hold float8_e4m3fn or its bytes");
  STD_TORCH_CHECK(global_scale.scalar_type() == ScalarType::Float && global_scale.numel() == 1,
                  "global_scale must be one float32, it is ", shape_of(global_scale));
  check_aligned(packed.const_data_ptr(), "packed");

  const torch::stable::accelerator::DeviceGuard guard(device);
  Tensor out = torch::stable::new_empty(packed, {n, k}, ScalarType::Half);
  check_launched(launch_dequantize_nvfp4(packed.const_data_ptr(), block_scale.const_data_ptr(),
                                         static_cast<const float*>(global_scale.const_data_ptr()),
                                         out.mutable_data_ptr(), n * (k / NVFP4_BLOCK), current_stream(device)),
                 "dequantize_nvfp4");
  return out;
}

Tensor dequantize_fp8(const Tensor& weight, const Tensor& scale, int64_t block_n, int64_t block_k) {
  STD_TORCH_CHECK(weight.dim() == 2, "weight must be [n, k], it is ", shape_of(weight));
  const int64_t n = weight.size(0);
  const int64_t k = weight.size(1);
  check_size(n, k);
  const int32_t device = weight.get_device_index();
  check_plain(weight, "weight", device);
  check_plain(scale, "scale", device);
  STD_TORCH_CHECK(holds_bytes_or_e4m3(weight), "weight must hold float8_e4m3fn or its bytes");
  STD_TORCH_CHECK(scale.scalar_type() == ScalarType::Float, "scale must hold float32");
  STD_TORCH_CHECK((block_n > 0) == (block_k > 0) && block_n >= 0 && block_k >= 0 && block_n <= MOST && block_k <= MOST,
                  "block_n and block_k must both be 0 or both be positive, they are ", block_n, " and ", block_k);
  if (block_n > 0) {
    check_shape(scale, "scale", (n + block_n - 1) / block_n, (k + block_k - 1) / block_k);
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
  check_launched(launch_dequantize_fp8(weight.const_data_ptr(), static_cast<const float*>(scale.const_data_ptr()),
                                       out.mutable_data_ptr(), static_cast<int>(n), static_cast<int>(k),
                                       static_cast<int>(block_n), static_cast<int>(block_k), current_stream(device)),
                 "dequantize_fp8");
  return out;
}

}  // namespace vllm_volta

// A fragment: the package's Python side defines operators in the same namespace.
STABLE_TORCH_LIBRARY_FRAGMENT(vllm_volta, ops) {
  ops.def("dequantize_nvfp4(Tensor packed, Tensor block_scale, Tensor global_scale, int n, int k) -> Tensor");
  ops.def("dequantize_fp8(Tensor weight, Tensor scale, int block_n, int block_k) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(vllm_volta, CUDA, ops) {
  ops.impl("dequantize_nvfp4", TORCH_BOX(&vllm_volta::dequantize_nvfp4));
  ops.impl("dequantize_fp8", TORCH_BOX(&vllm_volta::dequantize_fp8));
}

// `import vllm_volta._C` loads the operators; the module itself is empty.
PyMODINIT_FUNC PyInit__C() {
  static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&module);
}

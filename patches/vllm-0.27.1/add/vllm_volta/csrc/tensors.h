// What the operators ask of torch's tensors before a kernel gets them. Nothing is put into words unless it fails.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/shim_utils.h>

#include "panels.h"

namespace vllm_volta {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// The kernels count rows and columns with int, in steps of up to 128.
constexpr int64_t MOST = std::numeric_limits<int>::max() - 127;

// The GPU that tensors must be on, and whose it is.
struct Place {
  int32_t device;
  const char* owner;
};

inline std::string text_of(std::initializer_list<int64_t> sizes) {
  std::string text;
  for (const int64_t size : sizes) {
    text += (text.empty() ? "[" : ", ") + std::to_string(size);
  }
  return text + "]";
}

inline std::string shape_of(const Tensor& tensor) {
  std::string text = "[";
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    text += (i ? ", " : "") + std::to_string(tensor.size(i));
  }
  return text + "]";
}

inline std::string strides_of(const Tensor& tensor) {
  std::string text = "[";
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    text += (i ? ", " : "") + std::to_string(tensor.stride(i));
  }
  return text + "]";
}

inline void check_place(const Tensor& tensor, const char* name, const Place& place) {
  STD_TORCH_CHECK(tensor.is_cuda() && tensor.get_device_index() == place.device, name, " must be on the ", place.owner,
                  "'s GPU");
}

inline void check_plain(const Tensor& tensor, const char* name, const Place& place) {
  check_place(tensor, name, place);
  STD_TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous, its strides are ", strides_of(tensor));
}

// As Python calls it.
inline const char* type_name(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
      return "uint8";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Long:
      return "int64";
    case ScalarType::Half:
      return "float16";
    case ScalarType::Float:
      return "float32";
    default:
      return torch::headeronly::toString(type);
  }
}

inline void check_type(const Tensor& tensor, const char* name, ScalarType type) {
  STD_TORCH_CHECK(tensor.scalar_type() == type, name, " must hold ", type_name(type), ", it holds ",
                  type_name(tensor.scalar_type()));
}

inline void check_shape(const Tensor& tensor, const char* name, std::initializer_list<int64_t> sizes) {
  bool same = tensor.dim() == static_cast<int64_t>(sizes.size());
  for (int64_t i = 0; same && i < tensor.dim(); ++i) {
    same = tensor.size(i) == sizes.begin()[i];
  }
  STD_TORCH_CHECK(same, name, " must be ", text_of(sizes), ", it is ", shape_of(tensor));
}

inline void check_aligned(const void* pointer, const char* name) {
  STD_TORCH_CHECK(reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0, name, " must be aligned to 16 bytes");
}

inline void* current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return stream;
}

// A tensor of this type and shape on the GPU, as it lies in memory.
inline const void* data_of(const Tensor& tensor, const char* name, ScalarType type, const Place& place,
                           std::initializer_list<int64_t> sizes) {
  check_plain(tensor, name, place);
  check_type(tensor, name, type);
  check_shape(tensor, name, sizes);
  return tensor.const_data_ptr();
}

inline Fragments fragments_of_number(int64_t fragments) {
  STD_TORCH_CHECK(fragments == QUAD_PAIRS || fragments == OCTETS, "fragments must be ", static_cast<int>(QUAD_PAIRS),
                  " (quad pairs) or ", static_cast<int>(OCTETS), " (octets), it is ", fragments);
  return static_cast<Fragments>(fragments);
}

}  // namespace vllm_volta

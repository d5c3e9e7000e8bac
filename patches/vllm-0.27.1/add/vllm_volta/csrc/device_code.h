// The kernels' machine code (or PTX), which the build puts into the extension as it is: one file, made of
// device_code.cu.

#pragma once

#include <cstddef>

namespace vllm_volta {

// A fat binary, a cubin or PTX, whatever cuLibraryLoadData takes; a zero byte follows the last one.
struct DeviceCode {
  const void* start;
  std::size_t bytes;
};

DeviceCode device_code();

}  // namespace vllm_volta

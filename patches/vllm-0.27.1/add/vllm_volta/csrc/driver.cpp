#include "driver.h"

#include <cuda_runtime_api.h>

namespace vllm_volta {

namespace {

constexpr unsigned int DRIVER_VERSION = 12000;

template <class Function>
void find(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, DRIVER_VERSION, cudaEnableLegacyStream, &status);
  if (error != cudaSuccess) {
    throw LaunchError(std::string("the kernels of vllm_volta cannot run: CUDA's driver gives no ") + name + ": " +
                      cudaGetErrorString(error));
  }
  if (status != cudaDriverEntryPointSuccess || found == nullptr) {
    throw LaunchError(std::string("the kernels of vllm_volta cannot run: the driver has no ") + name +
                      " of CUDA 12.0: driver 525 or newer is needed");
  }
  function = reinterpret_cast<Function>(found);
}

Driver find_driver() {
  Driver found{};
  find("cuGetErrorString", found.get_error_string);
  find("cuCtxGetCurrent", found.get_current_context);
  find("cuDeviceGetAttribute", found.get_device_attribute);
  find("cuLibraryLoadData", found.load_library);
  find("cuLibraryGetKernel", found.get_kernel);
  find("cuKernelGetFunction", found.get_function);
  find("cuFuncSetAttribute", found.set_function_attribute);
  find("cuOccupancyMaxActiveBlocksPerMultiprocessor", found.get_resident_blocks);
  find("cuLaunchKernel", found.launch_kernel);
  return found;
}

}  // namespace

void Driver::fail(CUresult result, const std::string& what) const {
  const char* text = nullptr;
  if (get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) {
    text = "an error without a text";
  }
  throw LaunchError(what + ": " + text + " (CUDA error " + std::to_string(static_cast<int>(result)) + ")");
}

const Driver& driver() {
  static const Driver found = find_driver();
  return found;
}

}  // namespace vllm_volta

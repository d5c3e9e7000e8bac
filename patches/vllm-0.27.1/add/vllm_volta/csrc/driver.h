// CUDA's driver, asked for when a kernel is first needed: loading the extension needs no libcuda.

#pragma once

#include <stdexcept>
#include <string>

#include <cuda.h>
#include <cudaTypedefs.h>

namespace vllm_volta {

// A kernel could not be loaded or started; the text says which and what CUDA said.
class LaunchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The driver's functions, in the versions that CUDA 12.0 has (driver 525).
struct Driver {
  PFN_cuGetErrorString_v6000 get_error_string;
  PFN_cuCtxGetCurrent_v4000 get_current_context;
  PFN_cuDeviceGetAttribute_v2000 get_device_attribute;
  PFN_cuLibraryLoadData_v12000 load_library;
  PFN_cuLibraryGetKernel_v12000 get_kernel;
  PFN_cuKernelGetFunction_v12000 get_function;
  PFN_cuFuncSetAttribute_v9000 set_function_attribute;
  PFN_cuOccupancyMaxActiveBlocksPerMultiprocessor_v6050 get_resident_blocks;
  PFN_cuLaunchKernel_v4000 launch_kernel;

  // Raises LaunchError with `what` and CUDA's text.
  [[noreturn]] void fail(CUresult result, const std::string& what) const;
};

// Raises LaunchError where there is no driver, or one older than CUDA 12.0. Any thread may call it.
const Driver& driver();

}  // namespace vllm_volta

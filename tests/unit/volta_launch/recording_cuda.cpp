// Stands in for CUDA's runtime and driver below the launcher: it writes down what it is asked for, knows the kernels
// that the given code has (PTX), and fails where a test says so.

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "attention.h"
#include "panels.h"

namespace {

std::mutex mutex;
std::vector<std::string> calls;
std::string failing;
CUresult failure = CUDA_SUCCESS;
std::string hidden;
std::map<int, int> capabilities;
std::map<int, int> multiprocessors;
std::string code;
std::vector<std::string> kernels;
thread_local int current = -1;

CUresult note(const std::string& name, const std::string& more = "") {
  const std::lock_guard<std::mutex> lock(mutex);
  calls.push_back(name + more);
  return name == failing ? failure : CUDA_SUCCESS;
}

CUresult get_error_string(CUresult, const char** text) {
  *text = "what the driver says";
  return CUDA_SUCCESS;
}

CUresult get_current(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(current + 1));
  return CUDA_SUCCESS;
}

CUresult get_device_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  const int capability = capabilities.at(device);
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = capability / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = capability % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = multiprocessors.count(device) != 0 ? multiprocessors.at(device) : 80;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult load_library(CUlibrary* library, const void* data, CUjit_option* options, void** values, unsigned int count,
                      CUlibraryOption*, void**, unsigned int) {
  code = static_cast<const char*>(data);
  *library = reinterpret_cast<CUlibrary>(1);
  const CUresult result = note("cuLibraryLoadData");
  if (result != CUDA_SUCCESS && count == 2 && options[0] == CU_JIT_ERROR_LOG_BUFFER) {
    std::strcpy(static_cast<char*>(values[0]), "line 1 of the log");
  }
  return result;
}

CUresult get_kernel(CUkernel* kernel, CUlibrary, const char* name) {
  const CUresult result = note("cuLibraryGetKernel", std::string(" ") + name);
  if (code.find(std::string(".entry ") + name + "(") == std::string::npos) {
    return CUDA_ERROR_NOT_FOUND;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  kernels.push_back(name);
  *kernel = reinterpret_cast<CUkernel>(kernels.size());
  return result;
}

CUresult get_function(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return note("cuKernelGetFunction") == CUDA_SUCCESS && current >= 0 ? CUDA_SUCCESS : failure;
}

std::string name_of(CUfunction function) {
  const std::lock_guard<std::mutex> lock(mutex);
  return kernels.at(reinterpret_cast<std::uintptr_t>(function) - 1);
}

CUresult set_function_attribute(CUfunction function, CUfunction_attribute attribute, int value) {
  const bool known = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  const CUresult result = note("cuFuncSetAttribute", " " + name_of(function) + " shared " + std::to_string(value));
  return known ? result : CUDA_ERROR_INVALID_VALUE;
}

// As many as 1024 threads are.
CUresult get_resident_blocks(int* blocks, CUfunction, int threads, size_t) {
  *blocks = 1024 / threads;
  return note("resident blocks of threads", " " + std::to_string(threads));
}

// Pointers that are not null, and numbers, each with its name.
class Sayer {
 public:
  template <class Value>
  void operator()(const char* name, Value value) {
    if constexpr (std::is_pointer_v<Value>) {
      if (value != nullptr) {
        (*this)(name, reinterpret_cast<std::uintptr_t>(value));
      }
    } else {
      text += " " + std::string(name) + " " + std::to_string(value);
    }
  }

  std::string text;
};

std::string text_of(const vllm_volta::PagedAttention& work) {
  Sayer say;
  say("query", work.query);
  say("out", work.out);
  say("cache", work.cache);
  say("block_table", work.block_table);
  say("query_start", work.query_start);
  say("lengths", work.lengths);
  say("sinks", work.sinks);
  say("slopes", work.slopes);
  say("ranges", work.ranges);
  say("partial", work.partial);
  say("arrivals", work.arrivals);
  say("query_stride", work.query_stride);
  say("out_stride", work.out_stride);
  say("block_stride", work.block_stride);
  say("head_stride", work.head_stride);
  say("block_table_stride", work.block_table_stride);
  say("window", work.window);
  say("most_ranges", work.most_ranges);
  say("clamp_ranges", work.clamp_ranges);
  say("scale", work.scale);
  say("soft_cap", work.soft_cap);
  say("requests", work.requests);
  say("kv_heads", work.kv_heads);
  say("group", work.group);
  say("head_size", work.head_size);
  say("block_size", work.block_size);
  return say.text;
}

std::string text_of(const vllm_volta::CacheWrite& work) {
  Sayer say;
  say("key", work.key);
  say("value", work.value);
  say("cache", work.cache);
  say("slots", work.slots);
  say("key_stride", work.key_stride);
  say("value_stride", work.value_stride);
  say("block_stride", work.block_stride);
  say("head_stride", work.head_stride);
  say("tokens", work.tokens);
  say("kv_heads", work.kv_heads);
  say("head_size", work.head_size);
  say("block_size", work.block_size);
  return say.text;
}

CUresult launch_kernel(CUfunction function, unsigned int x, unsigned int y, unsigned int z, unsigned int threads,
                       unsigned int thread_y, unsigned int thread_z, unsigned int shared, CUstream stream,
                       void** parameters, void**) {
  const std::string name = name_of(function);
  std::string more = " " + name;
  for (const unsigned int number : {x, y, z, threads, thread_y, thread_z, shared}) {
    more += " " + std::to_string(number);
  }
  more += " stream " + std::to_string(reinterpret_cast<std::uintptr_t>(stream));
  if (name.rfind("attention_", 0) == 0) {
    more += text_of(*static_cast<const vllm_volta::PagedAttention*>(parameters[0]));
  } else if (name == "write_cache") {
    more += text_of(*static_cast<const vllm_volta::CacheWrite*>(parameters[0]));
  } else if (name.find("dequantize") == std::string::npos) {
    const auto& work = *static_cast<const vllm_volta::PanelMatmul*>(parameters[0]);
    more += " m " + std::to_string(work.m) + " n " + std::to_string(work.n) + " k " + std::to_string(work.k);
  }
  return note("cuLaunchKernel", more);
}

const std::map<std::string, void*> functions = {
    {"cuGetErrorString", reinterpret_cast<void*>(get_error_string)},
    {"cuCtxGetCurrent", reinterpret_cast<void*>(get_current)},
    {"cuDeviceGetAttribute", reinterpret_cast<void*>(get_device_attribute)},
    {"cuLibraryLoadData", reinterpret_cast<void*>(load_library)},
    {"cuLibraryGetKernel", reinterpret_cast<void*>(get_kernel)},
    {"cuKernelGetFunction", reinterpret_cast<void*>(get_function)},
    {"cuFuncSetAttribute", reinterpret_cast<void*>(set_function_attribute)},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", reinterpret_cast<void*>(get_resident_blocks)},
    {"cuLaunchKernel", reinterpret_cast<void*>(launch_kernel)},
};

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int version,
                                                       unsigned long long,
                                                       cudaDriverEntryPointQueryResult* status) {
  const bool found = symbol != hidden && version == 12000 && functions.count(symbol) != 0;
  *function = found ? functions.at(symbol) : nullptr;
  *status = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointVersionNotSufficent;
  return cudaSuccess;
}

const char* CUDARTAPI cudaGetErrorString(cudaError_t) { return "what the runtime says"; }

cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode set = cudaStreamCaptureModeGlobal;
  std::swap(set, *mode);
  note("capture mode ", std::to_string(set));
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  current = device;
  note("cudaSetDevice ", std::to_string(device));
  return cudaSuccess;
}

void has_gpu(int device, int capability) { capabilities[device] = capability; }

// Without this call it has 80.
void has_multiprocessors(int device, int count) { multiprocessors[device] = count; }

void fail(const char* name, int result) {
  failing = name;
  failure = static_cast<CUresult>(result);
}

void hide(const char* name) { hidden = name; }

// All calls so far, one a line.
const char* recorded() {
  static std::string text;
  text.clear();
  for (const std::string& call : calls) {
    text += call + "\n";
  }
  return text.c_str();
}
}

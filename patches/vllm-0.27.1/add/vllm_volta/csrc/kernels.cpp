#include "kernels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <cuda_runtime_api.h>

#include "device_code.h"
#include "driver.h"

namespace vllm_volta {

namespace {

// Kernels that stride over their work get this many thread blocks for each multiprocessor: of 256 threads as many as
// two loads of 2048 threads.
constexpr int STRIDING_BLOCKS = 16;
// More dynamic shared memory a kernel only gets when it is asked for (CUDA C++ Programming Guide, "Shared Memory" of
// compute capability 7.x).
constexpr int SHARED_BYTES_AT_ONCE = 48 * 1024;

// What device_code.cu says of a kernel.
struct Description {
  std::string name;
  int threads = 0;          // of a thread block
  int shared_bytes = 0;     // dynamic
  bool persistent = false;  // started with as many thread blocks as run at once
};

std::array<Description, KERNELS> describe_kernels() {
  std::array<Description, KERNELS> kernels;
  for (const Fragments fragments : {QUAD_PAIRS, OCTETS}) {
    const std::string form = fragments == OCTETS ? "octets" : "quad_pairs";
    for (const Format format : {NVFP4, FP8}) {
      const std::string panels = (format == NVFP4 ? "nvfp4_panels_" : "fp8_panels_") + form;
      for (int kernel = 0; kernel < PANEL_KERNELS; ++kernel) {
        kernels[matmul_number(format, fragments, kernel)] = {panels + "_" + std::to_string(panel_tokens(kernel)),
                                                             32 * PANEL_WARPS, 0, true};
      }
      kernels[dequantize_number(format, fragments)] = {"dequantize_" + panels, 32 * DEQUANTIZE_WARPS};
    }
    for (int kernel = 0; kernel < SPLIT_KERNELS; ++kernel) {
      kernels[split_number(fragments, kernel)] = {"attention_split_" + form + "_" +
                                                      std::to_string(split_head_size(kernel)) + "_" +
                                                      std::to_string(split_rows(kernel)),
                                                  32 * SPLIT_WARPS, 0, true};
    }
    for (const int head_size : HEAD_SIZES) {
      kernels[tiled_number(fragments, head_size)] = {"attention_tiled_" + form + "_" + std::to_string(head_size),
                                                     32 * TILED_WARPS, tiled_shared_bytes(head_size)};
    }
  }
  kernels[WRITE_CACHE] = {"write_cache", WRITE_THREADS};
  kernels[DEQUANTIZE_NVFP4] = {"dequantize_nvfp4_kernel", ROW_THREADS};
  kernels[DEQUANTIZE_FP8] = {"dequantize_fp8_kernel", ROW_THREADS};
  kernels[DEQUANTIZE_FP8_UNALIGNED] = {"dequantize_fp8_unaligned_kernel", ROW_THREADS};
  return kernels;
}

const Description& description_of(int kernel) {
  static const std::array<Description, KERNELS> kernels = describe_kernels();
  return kernels[kernel];
}

// Raises LaunchError with what `describe` says; it is asked only then.
template <class Describe>
void check(CUresult result, const Describe& describe) {
  if (result != CUDA_SUCCESS) {
    driver().fail(result, describe());
  }
}

void check_runtime(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw LaunchError(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

// While it lives, the calling thread may load code although one of its streams is being captured.
class RelaxedCapture {
 public:
  RelaxedCapture() {
    check_runtime(cudaThreadExchangeStreamCaptureMode(&mode_), "code cannot be loaded while a CUDA graph is captured");
  }
  // What worked once with the same thread works again.
  ~RelaxedCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

int attribute_of(int device, CUdevice_attribute attribute) {
  int value = 0;
  check(driver().get_device_attribute(&value, attribute, device),
        [&] { return "GPU " + std::to_string(device) + " does not say what it is"; });
  return value;
}

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

// The driver may write to the log whenever it compiles a part of the code, so it lives as long: until the process ends.
struct Library {
  CUlibrary handle{};
  std::array<char, 4096> log{};
  std::array<CUjit_option, 2> options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size() - 1)};

  std::string said() const { return log[0] == '\0' ? "" : std::string(": ") + log.data(); }
};

Library* load_library() {
  const DeviceCode code = device_code();
  auto library = std::make_unique<Library>();
  const CUresult result = driver().load_library(&library->handle, code.start, library->options.data(),
                                                library->values.data(), 2, nullptr, nullptr, 0);
  check(result, [&] {
    return "the device code of vllm_volta (" + std::to_string(code.bytes) + " bytes) cannot be loaded" +
           library->said();
  });
  return library.release();
}

const Library& library() {
  static const Library* loaded = load_library();
  return *loaded;
}

// Torch's guard leaves a thread that never chose a device without a context when it wants device 0.
void make_current(int device) {
  CUcontext context = nullptr;
  check(driver().get_current_context(&context), [] { return "the calling thread has no GPU"; });
  if (context == nullptr) {
    check_runtime(cudaSetDevice(device), "the GPU cannot be used");
  }
}

struct Kernel {
  CUfunction function;
  int resident;  // thread blocks of a multiprocessor at once, of a persistent kernel
};

Kernel load_kernel(const Description& kernel, int capability) {
  const RelaxedCapture relaxed;
  const auto describe = [&] {
    return "kernel " + kernel.name + " of vllm_volta cannot be loaded on a GPU of compute capability " +
           capability_text(capability) + library().said();
  };
  CUkernel handle{};
  check(driver().get_kernel(&handle, library().handle, kernel.name.c_str()), describe);
  Kernel loaded{};
  check(driver().get_function(&loaded.function, handle), describe);
  if (kernel.shared_bytes > SHARED_BYTES_AT_ONCE) {
    check(driver().set_function_attribute(loaded.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                          kernel.shared_bytes),
          [&] { return describe() + " with " + std::to_string(kernel.shared_bytes) + " bytes of shared memory"; });
  }
  if (kernel.persistent) {
    check(driver().get_resident_blocks(&loaded.resident, loaded.function, kernel.threads, kernel.shared_bytes),
          describe);
    if (loaded.resident < 1) {
      throw LaunchError(describe() + ": no thread block fits on a multiprocessor");
    }
  }
  return loaded;
}

}  // namespace

struct Device {
  explicit Device(int number)
      : capability(capability_of(number)),
        multiprocessors(attribute_of(number, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)) {}

  const Kernel& loaded(int kernel) {
    Slot& slot = slots_[kernel];
    if (!slot.filled.load(std::memory_order_acquire)) {
      fill(slot, kernel);
    }
    return slot.kernel;
  }

  const int capability;
  const int multiprocessors;

 private:
  struct Slot {
    std::atomic<bool> filled{false};
    Kernel kernel{};
  };

  void fill(Slot& slot, int kernel) {
    // One thread loads at a time, on all devices: they share the log.
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!slot.filled.load(std::memory_order_relaxed)) {
      slot.kernel = load_kernel(description_of(kernel), capability);
      slot.filled.store(true, std::memory_order_release);
    }
  }

  std::array<Slot, KERNELS> slots_;
};

Device& device_of(int number) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Device>> devices;
  make_current(number);
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Device>& known = devices[number];
  if (known == nullptr) {
    known = std::make_unique<Device>(number);
  }
  return *known;
}

int capability_of(int number) {
  return 10 * attribute_of(number, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
         attribute_of(number, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

void check_fragments(Fragments fragments, int capability) {
  if (fragments == OCTETS && capability < FIRST_WITH_OCTETS) {
    throw LaunchError("octets of tensor cores need compute capability 8.0 or newer, this GPU has " +
                      capability_text(capability) +
                      ": take quad pairs here, for which weights in panels must be packed anew");
  }
}

void check_fragments(Fragments fragments, const Device& device) { check_fragments(fragments, device.capability); }

int multiprocessors_of(const Device& device) { return device.multiprocessors; }

int resident_blocks(Device& device, int kernel) { return device.loaded(kernel).resident; }

int striding_blocks(const Device& device, long long pieces, int pieces_of_block) {
  return static_cast<int>(std::min<long long>(ceil_of_division(pieces, pieces_of_block),
                                              static_cast<long long>(device.multiprocessors) * STRIDING_BLOCKS));
}

void start(Device& device, int kernel, Grid grid, void** parameters, const Sizes& sizes, void* stream) {
  const Description& kind = description_of(kernel);
  const CUresult result =
      driver().launch_kernel(device.loaded(kernel).function, grid.x, grid.y, grid.z, kind.threads, 1, 1,
                             kind.shared_bytes, static_cast<CUstream>(stream), parameters, nullptr);
  check(result, [&] {
    std::string text = "kernel " + kind.name + " of vllm_volta cannot be started for ";
    for (const auto& [name, size] : sizes) {
      text += std::string(name) + " " + std::to_string(size) + ", ";
    }
    return text + std::to_string(grid.x) + (grid.y > 1 || grid.z > 1 ? " x " + std::to_string(grid.y) : "") +
           (grid.z > 1 ? " x " + std::to_string(grid.z) : "") + " blocks of " + std::to_string(kind.threads) +
           " threads";
  });
}

}  // namespace vllm_volta

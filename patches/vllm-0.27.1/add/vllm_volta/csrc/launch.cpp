#include "launch.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include "device_code.h"
#include "driver.h"

namespace vllm_volta {

namespace {

constexpr int ROW_THREADS = 256;
// Kernels that stride over their work get this many thread blocks for each multiprocessor: of 256 threads as many as
// two loads of 2048 threads.
constexpr int STRIDING_BLOCKS = 16;
constexpr int FIRST_WITH_OCTETS = 80;

constexpr int MATMULS = 2 * 2 * PANEL_KERNELS;
constexpr int DEQUANTIZE_PANELS = MATMULS;
constexpr int DEQUANTIZE_NVFP4 = DEQUANTIZE_PANELS + 2 * 2;
constexpr int DEQUANTIZE_FP8 = DEQUANTIZE_NVFP4 + 1;
constexpr int DEQUANTIZE_FP8_UNALIGNED = DEQUANTIZE_FP8 + 1;
constexpr int KERNELS = DEQUANTIZE_FP8_UNALIGNED + 1;

int matmul_kernel(Format format, Fragments fragments, int kernel) {
  return (format * 2 + fragments) * PANEL_KERNELS + kernel;
}

int dequantize_kernel(Format format, Fragments fragments) { return DEQUANTIZE_PANELS + format * 2 + fragments; }

// The names in device_code.cu, in the order of the numbers above.
std::array<std::string, KERNELS> kernel_names() {
  std::array<std::string, KERNELS> names;
  for (const Format format : {NVFP4, FP8}) {
    for (const Fragments fragments : {QUAD_PAIRS, OCTETS}) {
      const std::string panels =
          std::string(format == NVFP4 ? "nvfp4" : "fp8") + "_panels_" + (fragments == OCTETS ? "octets" : "quad_pairs");
      for (int kernel = 0; kernel < PANEL_KERNELS; ++kernel) {
        names[matmul_kernel(format, fragments, kernel)] = panels + "_" + std::to_string(panel_tokens(kernel));
      }
      names[dequantize_kernel(format, fragments)] = "dequantize_" + panels;
    }
  }
  names[DEQUANTIZE_NVFP4] = "dequantize_nvfp4_kernel";
  names[DEQUANTIZE_FP8] = "dequantize_fp8_kernel";
  names[DEQUANTIZE_FP8_UNALIGNED] = "dequantize_fp8_unaligned_kernel";
  return names;
}

const std::string& kernel_name(int kernel) {
  static const std::array<std::string, KERNELS> names = kernel_names();
  return names[kernel];
}

struct Kernel {
  CUfunction function;
  int resident;  // thread blocks of a multiprocessor at once, of a kernel for panels
};

struct Device {
  int capability;  // 70 for 7.0
  int multiprocessors;
  std::array<Kernel, KERNELS> kernels;
};

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

int capability_of(int device) {
  return 10 * attribute_of(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
         attribute_of(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
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

Kernel load_kernel(int kernel, int capability) {
  const auto describe = [&] {
    return "kernel " + kernel_name(kernel) + " of vllm_volta cannot be loaded on a GPU of compute capability " +
           capability_text(capability) + library().said();
  };
  CUkernel handle{};
  check(driver().get_kernel(&handle, library().handle, kernel_name(kernel).c_str()), describe);
  Kernel loaded{};
  check(driver().get_function(&loaded.function, handle), describe);
  if (kernel < MATMULS) {
    check(driver().get_resident_blocks(&loaded.resident, loaded.function, 32 * PANEL_WARPS, 0), describe);
    if (loaded.resident < 1) {
      throw LaunchError(describe() + ": no thread block fits on a multiprocessor");
    }
  }
  return loaded;
}

std::unique_ptr<Device> load_device(int device) {
  const RelaxedCapture relaxed;
  auto loaded = std::make_unique<Device>();
  loaded->capability = capability_of(device);
  loaded->multiprocessors = attribute_of(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  for (int kernel = 0; kernel < KERNELS; ++kernel) {
    loaded->kernels[kernel] = load_kernel(kernel, loaded->capability);
  }
  return loaded;
}

// Torch's guard leaves a thread that never chose a device without a context when it wants device 0.
void make_current(int device) {
  CUcontext context = nullptr;
  check(driver().get_current_context(&context), [] { return "the calling thread has no GPU"; });
  if (context == nullptr) {
    check_runtime(cudaSetDevice(device), "the GPU cannot be used");
  }
}

const Device& device_of(int device) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Device>> devices;
  make_current(device);
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Device>& known = devices[device];
  if (known == nullptr) {
    known = load_device(device);
  }
  return *known;
}

void check_fragments(Fragments fragments, int capability) {
  if (fragments == OCTETS && capability < FIRST_WITH_OCTETS) {
    throw LaunchError("octets of tensor cores need compute capability 8.0 or newer, this GPU has " +
                      capability_text(capability) + ": repack the weight for quad pairs");
  }
}

// Sizes that an error names.
using Sizes = std::initializer_list<std::pair<const char*, long long>>;

void launch(const Device& device, int kernel, int blocks, int threads, void** parameters, const Sizes& sizes,
            void* stream) {
  const CUresult result = driver().launch_kernel(device.kernels[kernel].function, blocks, 1, 1, threads, 1, 1, 0,
                                                 static_cast<CUstream>(stream), parameters, nullptr);
  check(result, [&] {
    std::string text = "kernel " + kernel_name(kernel) + " of vllm_volta cannot be started for ";
    for (const auto& [name, size] : sizes) {
      text += std::string(name) + " " + std::to_string(size) + ", ";
    }
    return text + std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads";
  });
}

int striding_blocks(const Device& device, long long pieces, int pieces_of_block) {
  return static_cast<int>(std::min<long long>(ceil_of_division(pieces, pieces_of_block),
                                              static_cast<long long>(device.multiprocessors) * STRIDING_BLOCKS));
}

}  // namespace

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
  const Device& found = device_of(device);
  check_fragments(fragments, found.capability);
  const Kernel& kernel = found.kernels[matmul_kernel(format, fragments, panel_kernel(m))];
  return plan_panels(m, n, k, found.multiprocessors, kernel.resident);
}

void launch_panel_matmul(int device, Format format, Fragments fragments, const PanelPlan& plan, const PanelMatmul& work,
                         void* stream) {
  const Device& found = device_of(device);
  check_fragments(fragments, found.capability);
  void* parameters[] = {const_cast<PanelMatmul*>(&work)};
  launch(found, matmul_kernel(format, fragments, plan.kernel), plan.blocks, 32 * PANEL_WARPS, parameters,
         {{"m", work.m}, {"n", work.n}, {"k", work.k}}, stream);
}

void launch_panel_dequantize(int device, Format format, Fragments fragments, const PanelDequantize& work,
                             void* stream) {
  const Device& found = device_of(device);
  check_fragments(fragments, found.capability);
  const long long panels = ceil_of_division(work.last - work.first, PANEL_ROWS) * ceil_of_division(work.k, PANEL_COLUMNS);
  void* parameters[] = {const_cast<PanelDequantize*>(&work)};
  launch(found, dequantize_kernel(format, fragments), striding_blocks(found, panels, DEQUANTIZE_WARPS),
         32 * DEQUANTIZE_WARPS, parameters, {{"first", work.first}, {"last", work.last}, {"k", work.k}}, stream);
}

void launch_dequantize_nvfp4(int device, const void* packed, const void* block_scale, const float* global_scale,
                             void* out, long long blocks, void* stream) {
  const Device& found = device_of(device);
  void* parameters[] = {&packed, &block_scale, &global_scale, &out, &blocks};
  launch(found, DEQUANTIZE_NVFP4, striding_blocks(found, blocks, ROW_THREADS), ROW_THREADS, parameters,
         {{"blocks", blocks}}, stream);
}

void launch_dequantize_fp8(int device, const void* weight, const float* scale, void* out, int rows, int columns,
                           int block_rows, int block_columns, void* stream) {
  const Device& found = device_of(device);
  const bool aligned = columns % 16 == 0 && block_columns % 16 == 0;
  const long long values = static_cast<long long>(rows) * columns;
  void* parameters[] = {&weight, &scale, &out, &rows, &columns, &block_rows, &block_columns};
  launch(found, aligned ? DEQUANTIZE_FP8 : DEQUANTIZE_FP8_UNALIGNED,
         striding_blocks(found, aligned ? values / 16 : values, ROW_THREADS), ROW_THREADS, parameters,
         {{"n", rows}, {"k", columns}}, stream);
}

}  // namespace vllm_volta

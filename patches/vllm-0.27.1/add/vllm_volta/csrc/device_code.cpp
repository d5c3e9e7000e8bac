#include "device_code.h"

// VLLM_VOLTA_DEVICE_CODE: the path of the file. Fat binaries have a section of their own name, in which cuobjdump and
// the self-test of onecat's images look for them.
__asm__(
    ".pushsection .nv_fatbin, \"a\"\n"
    ".balign 64\n"
    ".local vllm_volta_device_code_start\n"
    "vllm_volta_device_code_start:\n"
    ".incbin \"" VLLM_VOLTA_DEVICE_CODE "\"\n"
    ".local vllm_volta_device_code_end\n"
    "vllm_volta_device_code_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" {
__attribute__((visibility("hidden"))) extern const char vllm_volta_device_code_start[];
__attribute__((visibility("hidden"))) extern const char vllm_volta_device_code_end[];
}

namespace vllm_volta {

DeviceCode device_code() {
  return {vllm_volta_device_code_start,
          static_cast<std::size_t>(vllm_volta_device_code_end - vllm_volta_device_code_start)};
}

}  // namespace vllm_volta

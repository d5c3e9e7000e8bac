"""Environment variables."""

from __future__ import annotations

from dataclasses import replace

from onecat.facts import Facts, GpuPair, NvLink
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import CPU, HEALTHY, NVIDIA, V100, v100
from tests.unit.doctor.host_examples import KNOWN, environment, known

NVLINK = replace(NVIDIA, pairs=(GpuPair(0, 1, "NV4"),))
NVLINK_OF_A_GPU = replace(NVIDIA, gpus=(v100(0, nvlinks=(NvLink(0, active=True),)), v100(1)))


def visible(value: str, **changes: object) -> Facts:
    return replace(environment(CUDA_VISIBLE_DEVICES=value), **changes)  # type: ignore[arg-type]


CASES: list[Case] = [
    case("environment.ptx-jit", "pass", "the code that libraries bring", KNOWN, None),
    case("environment.ptx-jit", "pass", "", environment(CUDA_FORCE_PTX_JIT="0"), None),
    case("environment.ptx-jit", "warn", "CUDA_FORCE_PTX_JIT=1", environment(CUDA_FORCE_PTX_JIT="1"), None),
    case("environment.ptx-jit", "info", "CUDA_FORCE_PTX_JIT=1", environment(CUDA_FORCE_PTX_JIT="1"), V100),
    case("environment.ptx-jit", "skip", "not known", HEALTHY),
    case("environment.visible-devices", "pass", "is not set", KNOWN, None),
    case("environment.visible-devices", "pass", "shows every GPU", visible("1,0"), None),
    case("environment.visible-devices", "pass", "shows every GPU", visible("GPU-00000000, GPU-00000001"), None),
    case("environment.visible-devices", "info", "shows 1 of 2", visible("0"), None),
    case("environment.visible-devices", "info", "shows 1 of 2", visible("MIG-7f1c"), None),
    case("environment.visible-devices", "warn", "hides every GPU", visible(""), None),
    case("environment.visible-devices", "info", "hides every GPU", visible(""), V100),
    case("environment.visible-devices", "warn", "names '7'", visible("0,7"), None),
    case("environment.visible-devices", "warn", "names 'GPU-ffff'", visible("GPU-ffff"), None),
    case("environment.visible-devices", "info", "is set", visible("0", nvidia=None), None),
    case("environment.visible-devices", "info", "the profile needs 2", visible("0"), V100),
    case("environment.visible-devices", "skip", "not known", HEALTHY),
    case("environment.launch-blocking", "pass", "asynchronously", KNOWN, None),
    case("environment.launch-blocking", "warn", "slow", environment(CUDA_LAUNCH_BLOCKING="1"), None),
    case("environment.launch-blocking", "skip", "not known", HEALTHY),
    case("environment.library-path", "pass", "", environment(LD_LIBRARY_PATH="/usr/local/cuda/lib64"), None),
    case(
        "environment.library-path",
        "warn",
        "stubs",
        environment(LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs:/usr/lib"),
        None,
    ),
    case(
        "environment.library-path", "warn", "compatibility", environment(LD_LIBRARY_PATH="/usr/local/cuda/compat"), None
    ),
    case("environment.library-path", "skip", "not known", HEALTHY),
    case("environment.preload", "pass", "not set", KNOWN, None),
    case("environment.preload", "info", "into every program", environment(LD_PRELOAD="/opt/libhook.so"), None),
    case("environment.preload", "skip", "not known", HEALTHY),
    case("environment.removed-variables", "pass", "No variable", KNOWN, CPU),
    case("environment.removed-variables", "warn", "VLLM_USE_V1 does nothing", environment(VLLM_USE_V1="0"), CPU),
    case("environment.removed-variables", "info", "since vLLM 0.12.0", environment(VLLM_USE_V1="0"), None),
    case(
        "environment.removed-variables",
        "info",
        "VLLM_ATTENTION_BACKEND does nothing",
        environment(VLLM_ATTENTION_BACKEND="XFORMERS"),
        V100,
    ),
    case("environment.removed-variables", "skip", "not known", HEALTHY),
    case("environment.allocator", "pass", "by default", KNOWN, None),
    case("environment.allocator", "warn", "wait for the driver", environment(PYTORCH_NO_CUDA_MEMORY_CACHING="1"), None),
    case(
        "environment.allocator",
        "info",
        "PYTORCH_CUDA_ALLOC_CONF",
        environment(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
        None,
    ),
    case("environment.allocator", "skip", "not known", HEALTHY),
    case("environment.nccl", "pass", "No NCCL variable", KNOWN, None),
    case("environment.nccl", "info", "host's memory", environment(NCCL_P2P_DISABLE="1"), None),
    case(
        "environment.nccl",
        "warn",
        "although NVLink",
        known(environment=(("NCCL_P2P_DISABLE", "1"),), nvidia=NVLINK),
        None,
    ),
    case(
        "environment.nccl",
        "warn",
        "although NVLink",
        known(environment=(("NCCL_P2P_DISABLE", "1"),), nvidia=NVLINK_OF_A_GPU),
        None,
    ),
    case("environment.nccl", "warn", "over the network", environment(NCCL_SHM_DISABLE="1"), None),
    case("environment.nccl", "info", "told how to work", environment(NCCL_DEBUG="INFO"), None),
    case("environment.nccl", "pass", "No NCCL variable", environment(NCCL_VERSION="2.28.3-1"), None),
    case("environment.nccl", "skip", "not known", HEALTHY),
    case("environment.proxy", "pass", "No proxy", KNOWN),
    case("environment.proxy", "warn", "health checks", environment(http_proxy="http://proxy:3128")),
    case(
        "environment.proxy",
        "pass",
        "past the proxy",
        environment(http_proxy="http://proxy:3128", no_proxy="localhost,127.0.0.1,.example.org"),
    ),
    case("environment.proxy", "info", "only one of", environment(HTTP_PROXY="http://proxy:3128", NO_PROXY="localhost")),
    case("environment.proxy", "pass", "past the proxy", environment(ALL_PROXY="socks5://proxy:1080", NO_PROXY="*")),
    case("environment.proxy", "skip", "not known", HEALTHY),
]

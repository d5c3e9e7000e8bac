"""CUDA on the host: toolkits, compilers and compatibility libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.cuda_code import capability_of
from onecat.doctor.driver import driver_version
from onecat.doctor.hardware import compute_capability
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key

ARCHITECTURE_MATRIX = (
    "https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html"
)
COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
STALE_LIBRARY = "https://github.com/gpustack/gpustack/issues/4678"
COMPILER = "https://github.com/vllm-project/vllm/issues/5547"


@check(
    "cuda.toolkit",
    title="The CUDA toolkit of the host can compile for its GPUs",
    why="A server in a container and ready-made wheels bring their own CUDA; a toolkit on the host matters only for "
    "what is compiled there. CUDA 13 no longer compiles for GPUs before Turing.",
    fix=("to compile for Volta: CUDA toolkit 12.6",),
    source=(ARCHITECTURE_MATRIX, "https://github.com/pytorch/pytorch/issues/157517"),
    requires=(requirements.nvidia_hardware,),
)
def cuda_toolkit(context: Context) -> Iterator[Verdict]:
    """The toolkits on the host against the compute capability of the GPUs."""
    toolkits = [(path, version) for path, version in context.nvidia.toolkits if version_key(version)]
    found = [capability_of(compute_capability(gpu)) for gpu in context.gpus]
    oldest = min((each for each in found if each is not None), default=None)
    evidence = tuple(f"{path}: {version}" for path, version in toolkits)
    if not toolkits:
        yield Verdict("skip", "Not checked: no CUDA toolkit was found on the host, and none is needed")
    elif oldest is None:
        yield Verdict("skip", "Not checked: the compute capability of the GPUs is not known", evidence=evidence)
    elif oldest < (7, 5) and all(version_key(version)[0] >= 13 for _, version in toolkits):
        yield Verdict(
            "info",
            f"No toolkit on the host compiles for compute capability {oldest[0]}.{oldest[1]}",
            evidence=evidence,
            fix=("only if something is compiled on the host: install CUDA toolkit 12.6 beside it",),
        )
    else:
        yield Verdict("pass", "CUDA " + " and ".join(version for _, version in toolkits), evidence=evidence)


@check(
    "cuda.compiler",
    title="The CUDA compiler of the host is of the family of its PyTorch",
    why="What an engine compiles on the host (extensions, kernels at run time) is linked with PyTorch's CUDA; another "
    "major version of nvcc gives code that does not load or has no code for the GPU.",
    fix=("install the CUDA toolkit of PyTorch's version: python3 -c 'import torch; print(torch.version.cuda)'",),
    source=(COMPILER,),
    requires=(requirements.gpus_matter,),
)
def cuda_compiler(context: Context) -> Iterator[Verdict]:
    """The version of nvcc against torch.version.cuda in every environment that was seen.

    Ready-made wheels do not need nvcc, so another one is no fault by itself.
    """
    known = [each for each in context.facts.engines if version_key(each.compiler_version or "")]
    pairs = [each for each in known if version_key(each.torch_cuda_version or "")]
    if not pairs:
        yield Verdict("skip", "Not checked: no environment with both PyTorch for CUDA and nvcc is known")
    for each in pairs:
        nvcc, torch = each.compiler_version or "", each.torch_cuda_version or ""
        evidence = (f"nvcc: {nvcc}", f"PyTorch {each.torch_version or ''} for CUDA {torch}")
        if version_key(nvcc)[0] == version_key(torch)[0]:
            yield Verdict("pass", f"nvcc {nvcc} fits PyTorch's CUDA {torch}", each.where, evidence)
        else:
            yield Verdict(
                "info",
                f"nvcc is {nvcc}, PyTorch is for CUDA {torch}",
                each.where,
                evidence,
                fix=(f"install the CUDA toolkit {torch}, and set CUDA_HOME to it", "or let nothing be compiled there"),
            )


@check(
    "cuda.compat-libraries",
    title="No CUDA compatibility library stands before the driver's own",
    why="cuda-compat packages bring a libcuda of another driver. One that is older than the driver ends every CUDA "
    "program with error 803; on cards that are not for data centres it ends with error 804.",
    fix=(
        "take its directory out of /etc/ld.so.conf.d and LD_LIBRARY_PATH, then: sudo ldconfig",
        "ldconfig -p | grep libcuda.so",
    ),
    source=(COMPATIBILITY, STALE_LIBRARY),
    requires=(requirements.gpus_matter,),
)
def cuda_compat_libraries(context: Context) -> Iterator[Verdict]:
    """libcuda of compatibility packages where the loader finds it, and errors 803 and 804 of a GPU calculation."""
    told = [each for each in context.facts.engines if re.search(r"\berror 80[34]\b", each.error or "", re.IGNORECASE)]
    for each in told:
        yield Verdict(
            "fail",
            "A CUDA compatibility library keeps CUDA from starting",
            each.where,
            ((each.error or "")[:300],),
            fix=(
                "take /usr/local/cuda*/compat out of ld.so.conf.d and LD_LIBRARY_PATH there, then: ldconfig",
                "vLLM images: do not set VLLM_ENABLE_CUDA_COMPATIBILITY with a driver that is new enough",
            ),
        )
    version = driver_version(context)
    if context.facts.nvidia is None:
        if not told:
            yield Verdict("skip", f"Not checked: {context.why_absent('driver', 'no NVIDIA facts were collected')}")
        return
    libraries = context.nvidia.compat_libraries
    if not libraries and not told:
        if context.nvidia.library_found is not None:
            yield Verdict("pass", "The loader finds no CUDA compatibility library")
        else:
            yield Verdict("skip", "Not checked: the loader was not asked")
    for path in libraries:
        number = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", path)
        compat = number.group(1) if number else None
        evidence = (path, f"driver: {version or 'unknown'}")
        fix = ("take its directory out of /etc/ld.so.conf.d and LD_LIBRARY_PATH, then: sudo ldconfig",)
        if compat is not None and compat == version:
            yield Verdict(
                "info",
                "A CUDA compatibility library of the driver's own version is in the way",
                path,
                evidence,
                fix=fix,
            )
        elif compat is not None and version is not None and version_key(compat) > version_key(version):
            yield Verdict(
                "info", f"CUDA programs use driver libraries {compat} on driver {version}", path, evidence, fix=fix
            )
        else:
            yield Verdict(
                "warn", "A CUDA compatibility library stands before the driver's own", path, evidence, fix=fix
            )

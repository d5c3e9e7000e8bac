"""The CUDA and NCCL inside engines against GPUs that are newer than they."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import compute_capability
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key
from onecat.facts import EngineEnvironment
from onecat.knowledge.cuda_floors import cuda_targets, nccl_floors

NEW_TARGETS = "https://github.com/llvm/llvm-project/pull/136639"
FP4_ON_GB10 = "https://github.com/vllm-project/vllm/issues/30855"
NCCL_5090 = "https://github.com/NVIDIA/nccl/issues/1637"


@check(
    "cuda.target",
    title="The engine's CUDA can compile for the GPUs",
    why="A GPU runs code that was made for an older one of its major compute capability, but kernels that are compiled "
    "for exactly one GPU (FP4) or at run time (Triton, FlashInfer) need a CUDA that knows it.",
    fix=("take an image or wheel with a newer CUDA", "or let Triton use a newer ptxas: TRITON_PTXAS_PATH"),
    source=(NEW_TARGETS, FP4_ON_GB10),
    requires=(requirements.gpus,),
)
def cuda_target(context: Context) -> Iterator[Verdict]:
    """The CUDA version of every PyTorch that was seen, against the first that knows the GPUs' compute capability."""
    capabilities = {compute_capability(gpu) for gpu in context.gpus}
    engines = [each for each in context.facts.engines if version_key(each.torch_cuda_version or "")]
    if not engines or None in capabilities:
        what = "no PyTorch for CUDA is known" if not engines else "the compute capability of a GPU is not known"
        yield Verdict("skip", f"Not checked: {what}")
        return
    targets = [each for each in cuda_targets() if each.compute_capability in capabilities]
    for engine in engines:
        cuda = engine.torch_cuda_version or ""
        ahead = [each for each in targets if version_key(cuda) < version_key(each.cuda)]
        evidence = (f"PyTorch {engine.torch_version or ''} for CUDA {cuda}",)
        if not ahead:
            yield Verdict("pass", f"CUDA {cuda} knows the GPUs", engine.where, evidence)
        for target in ahead:
            yield Verdict(
                "info",
                f"CUDA {cuda} makes no code for compute capability {target.compute_capability}, "
                f"{target.cuda} is the first that does",
                engine.where,
                evidence,
                fix=(
                    f"for FP4 checkpoints and kernels compiled at run time: an image with CUDA {target.cuda} or later",
                    "or let Triton use a newer ptxas: TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",
                ),
                source=(*target.source, FP4_ON_GB10),
            )


@check(
    "cuda.nccl-version",
    title="The engine's NCCL works between the GPUs",
    why="NCCL carries the data between GPUs of tensor parallelism. A release that is older than the GPUs may hang.",
    fix=("take an image or PyTorch with a newer NCCL", "python3 -c 'import torch; print(torch.cuda.nccl.version())'"),
    source=(NCCL_5090,),
    requires=(requirements.gpus,),
)
def cuda_nccl_version(context: Context) -> Iterator[Verdict]:
    """The NCCL package of every environment that was seen, where there are several GPUs that need a newer one."""
    if len(context.gpus) < 2:
        yield Verdict("skip", "Not checked: there is one GPU only")
        return
    capabilities = {compute_capability(gpu) for gpu in context.gpus}
    floors = [each for each in nccl_floors() if each.compute_capability in capabilities]
    known = [(engine, version) for engine in context.facts.engines if (version := _nccl(engine)) is not None]
    if not known:
        yield Verdict("skip", "Not checked: the version of NCCL is not known")
    for engine, version in known:
        old = [floor for floor in floors if version_key(version) < version_key(floor.version)]
        if not old:
            yield Verdict("pass", f"NCCL {version}", engine.where)
        for floor in old:
            yield Verdict(
                "warn",
                f"NCCL {version} is too old for compute capability {floor.compute_capability}: {floor.why}",
                engine.where,
                (f"NCCL {version}; works from {floor.version} on",),
                fix=(f"take an image or PyTorch with NCCL {floor.version} or later",),
                source=floor.source,
            )


def _nccl(engine: EngineEnvironment) -> str | None:
    """NCCL by its wheel, nvidia-nccl-cu12 or -cu13."""
    names = (version for name, version in engine.packages if name.lower().startswith("nvidia-nccl-"))
    return next((version for version in names if version_key(version)), None)

"""Python environments with PyTorch, as PyTorch describes them itself."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check


@check(
    "engine.cuda-available",
    title="PyTorch sees the GPUs",
    why="nvidia-smi can list GPUs that PyTorch does not see: a build without CUDA, a variable that hides them, a "
    "missing /dev/nvidia-uvm, or libraries that do not fit the driver.",
    fix=("python3 -c 'import torch; print(torch.__version__, torch.version.cuda); torch.cuda.init()' names the cause",),
    source=("https://github.com/NVIDIA/nvidia-docker/issues/1085", "https://github.com/pytorch/pytorch/issues/6041"),
    requires=(requirements.nvidia_hardware,),
)
def engine_cuda_available(context: Context) -> Iterator[Verdict]:
    """torch.cuda.is_available() of every environment among the facts (collect_env, --smoke)."""
    known = [each for each in context.facts.engines if each.cuda_available is not None]
    if not known:
        yield Verdict("skip", "Not checked: no environment with PyTorch is among the facts (collect_env, --smoke)")
    for each in known:
        version = f"PyTorch {each.torch_version or '?'}"
        if each.cuda_available:
            yield Verdict("pass", f"{version} sees GPUs", each.where)
            continue
        is_cpu_build = each.torch_cuda_version is None
        yield Verdict(
            "warn",
            f"{version} is built without CUDA" if is_cpu_build else f"{version} sees no GPU",
            each.where,
            ("torch.cuda.is_available() is False", f"built for CUDA {each.torch_cuda_version or 'none'}"),
            fix=(
                ("install a build with CUDA, as https://pytorch.org/get-started/locally/ shows",)
                if is_cpu_build
                else (
                    f"in that environment: python3 -c 'import torch; torch.cuda.init()' names the cause ({each.where})",
                    "ls -l /dev/nvidia-uvm; echo $CUDA_VISIBLE_DEVICES",
                )
            ),
        )

"""Containers that are there already."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import MIB, told
from onecat.facts import DockerContainer

SMALL = 64 * MIB
_ENGINE_IMAGE = re.compile(
    r"vllm|1cat|sglang|lmdeploy|tritonserver|text-generation-inference|llama|pytorch|onecat", re.IGNORECASE
)
VLLM_DOCKER = "https://docs.vllm.ai/en/latest/deployment/docker/"


def running(context: Context) -> tuple[DockerContainer, ...]:
    """The containers that run."""
    docker = context.facts.docker
    listed = docker.containers if docker is not None else None
    return tuple(each for each in listed or () if each.state in ("running", "restarting"))


def serves(container: DockerContainer) -> bool:
    """Whether it has GPUs to serve a model with, by its image: monitors of GPUs (DCGM, ...) have GPUs as well."""
    return bool(container.gpus) and _ENGINE_IMAGE.search(container.image or "vllm") is not None


@check(
    "docker.shared-memory",
    title="Containers with GPUs have shared memory to spare",
    why="Docker gives a container 64 MiB of /dev/shm. The workers of one server exchange data through it, and NCCL "
    "too: too little ends in a bus error, or in: unable to create shared memory segment.",
    fix=("make the container anew with --shm-size 2g or --ipc=host", "Compose: shm_size: 2g"),
    source=(VLLM_DOCKER, "https://github.com/vllm-project/vllm/issues/789"),
    requires=(
        requirements.gpus_matter,
        requirements.docker_containers,
    ),
)
def docker_shared_memory(context: Context) -> Iterator[Verdict]:
    """The size of /dev/shm of each running container that has GPUs and an engine's image."""
    small = [each for each in running(context) if serves(each) and each.shm_size is not None and each.shm_size <= SMALL]
    if not small:
        yield Verdict("pass", "No container has GPUs and only 64 MiB of shared memory")
    for each in small:
        yield Verdict(
            "warn" if len(context.gpus) > 1 else "info",
            f"The container {each.name} has GPUs and {(each.shm_size or 0) // MIB} MiB of shared memory",
            each.name,
            (f"docker inspect {each.name}: ShmSize {each.shm_size}, IpcMode {told(each.ipc_mode)}",),
            fix=("make the container anew with --shm-size 2g or --ipc=host", "Compose: shm_size: 2g"),
        )


@check(
    "docker.container-devices",
    title="Containers that were handed GPUs as files have all that CUDA needs",
    why="Handing over /dev/nvidia0 alone is enough for nvidia-smi but not for CUDA, which needs /dev/nvidia-uvm and "
    "/dev/nvidiactl.",
    fix=("use --gpus all, or add --device /dev/nvidia-uvm --device /dev/nvidiactl",),
    source=("https://github.com/NVIDIA/nvidia-docker/issues/1085",),
    requires=(
        requirements.gpus_matter,
        requirements.docker_containers,
    ),
)
def docker_container_devices(context: Context) -> Iterator[Verdict]:
    """The device files of each running container that was handed one of a GPU."""
    quiet = True
    for each in running(context):
        if each.privileged or not any(re.fullmatch(r"/dev/nvidia\d+", path) for path in each.device_paths):
            continue
        missing = [path for path in ("/dev/nvidia-uvm", "/dev/nvidiactl") if path not in each.device_paths]
        if missing and each.runtime != "nvidia":
            quiet = False
            yield Verdict(
                "warn",
                f"The container {each.name} has a GPU without {' and '.join(missing)}: CUDA does not work in it",
                each.name,
                (f"docker inspect {each.name}: devices {', '.join(each.device_paths)}",),
                fix=("make it anew with --gpus all", f"or add {' '.join('--device ' + path for path in missing)}"),
            )
    if quiet:
        yield Verdict("pass", "No container has half of a GPU")


@check(
    "docker.privileged",
    title="No container has all rights of the host",
    why="--privileged gives a container every device and every capability. No inference server needs it: --gpus does.",
    fix=("make the container anew without --privileged, with --gpus all",),
    source=("https://docs.datadoghq.com/security/default_rules/8xc-5x6-h2k/",),
    requires=(requirements.docker_containers,),
)
def docker_privileged(context: Context) -> Iterator[Verdict]:
    """Running containers that were started with --privileged."""
    privileged = [each for each in running(context) if each.privileged]
    if not privileged:
        yield Verdict("pass", "No running container is privileged")
    else:
        yield Verdict(
            "info",
            f"These containers have all rights of the host: {', '.join(each.name for each in privileged)}",
            evidence=tuple(
                f"docker inspect {each.name}: Privileged true (image {told(each.image)})" for each in privileged
            ),
            fix=("if one of them serves a model: make it anew without --privileged, with --gpus all",),
        )

"""Shared memory: /dev/shm, through which the processes of a server talk."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import MIB, gibibytes
from onecat.facts import Filesystem

DOCKER_DEFAULT = 64 * MIB
"""Size of a container's own /dev/shm where nothing else is asked for."""
VLLM_DOCKER = "https://docs.vllm.ai/en/latest/deployment/docker/"


def _needed_natively(context: Context) -> int:
    """What a native server needs of the host's /dev/shm, in MiB; 0 where it is not said."""
    assert context.profile is not None
    launch = context.profile.launch
    sizes = {arg.arg: arg.value for arg in launch.args}
    workers = int(sizes.get("tensor-parallel-size", 1)) * int(sizes.get("pipeline-parallel-size", 1))
    workers = max([workers, *(layout.cards for layout in launch.layouts[:1])])
    in_container = context.profile.launch.container.shm_size_mib if workers > 1 else 0
    return max(context.profile.doctor.shm_mib, in_container)


@check(
    "shm.size",
    title="/dev/shm has room for what the server's processes share",
    why="The processes of a server exchange data through /dev/shm, and so does NCCL where GPUs cannot reach each "
    "other; when it is full they die of SIGBUS or refuse to start.",
    fix=("sudo mount -o remount,size=1G /dev/shm", "in a container: start it with --shm-size 1g"),
    source=(VLLM_DOCKER,),
)
def shm_size(context: Context) -> Iterator[Verdict]:
    """Size and free space of the /dev/shm that the probe sees, against what a native server of the profile needs.

    A server in a container gets its own, of the plan's size; that is judged only where the probe itself ran in one.
    """
    shm = context.facts.filesystem("shm")
    if shm is None:
        yield Verdict("skip", "Not checked: /dev/shm was not found")
        return
    needed = _needed_natively(context) if context.profile is not None and "native" in context.runtimes else 0
    if needed:
        yield _against_need(shm, needed)
    elif shm.total <= DOCKER_DEFAULT:
        without_gpus = context.facts.nvidia is not None and not context.has_nvidia_hardware and not context.wants_gpus
        yield Verdict(
            "info" if without_gpus else "warn",
            f"/dev/shm has {shm.total // MIB} MiB, as Docker gives it where nothing else is asked for",
            evidence=(f"/dev/shm: {shm.available // MIB} MiB free of {shm.total // MIB} MiB",),
            fix=(
                "start the container anew with --shm-size 2g, or with --ipc=host",
                "Compose: shm_size: 2g; Kubernetes: an emptyDir with medium: Memory at /dev/shm",
            ),
            source=(VLLM_DOCKER, "https://github.com/vllm-project/vllm/issues/789"),
        )
    elif context.profile is not None and "native" not in context.runtimes:
        yield Verdict("skip", "Not checked: the server runs in a container, which brings its own")
    elif context.profile is not None:
        yield Verdict("skip", f"Not checked: the profile {context.profile.name} names no least size")
    else:
        yield Verdict("pass", f"/dev/shm has {gibibytes(shm.available)} free")


def _against_need(shm: Filesystem, needed: int) -> Verdict:
    evidence = (f"/dev/shm: {shm.available // MIB} MiB free of {shm.total // MIB} MiB, needed: {needed} MiB",)
    if shm.available >= needed * MIB:
        return Verdict("pass", f"/dev/shm has {gibibytes(shm.available)} free", evidence=evidence)
    if shm.total >= needed * MIB:
        return Verdict(
            "fail",
            f"/dev/shm has {shm.available // MIB} MiB free, the engine needs {needed} MiB",
            evidence=evidence,
            fix=("see what fills it: ls -l /dev/shm", "remove what ended programs have left there"),
        )
    size = f"{max(1, -(-needed // 1024))}G"
    return Verdict(
        "fail",
        f"/dev/shm has {shm.total // MIB} MiB, the engine needs {needed} MiB",
        evidence=evidence,
        fix=(f"sudo mount -o remount,size={size} /dev/shm", f"in a container: start it with --shm-size {size.lower()}"),
    )

"""Shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.doctor.units import MIB, gibibytes
from onecat.live.preflight.doctor_findings import told_as_one
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.host import HostSeen
from onecat.live.preflight.observing.service import Keeper


@check(
    "preflight.shared-memory",
    title="/dev/shm is as large as the plan wants it",
    why="The server's processes, and NCCL where GPUs cannot reach each other, exchange data through /dev/shm; when it "
    "is full they hang, answer nothing or die of SIGBUS.",
    fix=("onecat up makes the container as planned",),
    source=("https://docs.vllm.ai/en/latest/deployment/docker/",),
    requires=needs(HostSeen, Keeper),
    group="host",
    place=6,
)
def shared_memory(look: Look) -> Iterator[Verdict]:
    """Of a server in a container the size that Docker says it has, against the plan; of others doctor's check of the
    host's."""
    keeper = look.of(Keeper)
    container = look.plan.container
    if container is None or look.deployment.container.host_ipc:
        facts = look.of(HostSeen).facts
        shm = facts.filesystem("shm")
        told = "The host's /dev/shm" if shm is None else f"{gibibytes(shm.available)} free on the host's /dev/shm"
        yield from told_as_one(look.of(HostSeen).of("shm.size"), told)
    elif keeper.shm_bytes is None:
        yield Verdict("skip", "Not checked: Docker does not say how large the container's /dev/shm is")
    elif keeper.shm_bytes < container.shm_bytes:
        yield Verdict(
            "fail",
            f"The container's /dev/shm has {keeper.shm_bytes // MIB} MiB, not the planned {container.shm_bytes // MIB}",
            evidence=(f"docker inspect: ShmSize {keeper.shm_bytes}",),
            fix=(f"make it anew as planned: onecat restart {look.name}{look.host_option}",),
        )
    else:
        yield Verdict("pass", f"/dev/shm of the container has {keeper.shm_bytes // MIB} MiB, as planned")

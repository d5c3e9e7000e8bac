"""From a run and its release to the specification of the server's container."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onecat.deploy import prerequisites
from onecat.deploy.cache_volume import CACHE_DIRECTORY, cache_volume
from onecat.deploy.container import (
    Daemon,
    container_user,
    daemon_of,
    home_identity,
    image_of,
    labels,
    missing_image,
)
from onecat.deploy.container_spec import planned_spec
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.deploy.container_spec import ContainerSpec
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run
    from onecat.hosts import Machine


def container_spec(run: Run, release: Release, name: str) -> ContainerSpec:
    """What the container of a release is made from; its copy of the API key is written beside it.

    Raises OnecatError when the daemon cannot be asked or the host has no such NUMA node.
    """
    plan, machine, deployment = run.plan, run.machine, run.deployment
    assert plan.container is not None
    limits, restart = deployment.container, deployment.restart
    user = container_owner(run)
    home = home_identity(machine)
    docker_host = machine.docker_host(release.docker_host)
    image = image_of(docker_host, plan.container.image)
    if image is None:
        raise missing_image(plan.container.image, deployment.profile)
    cache = cache_volume(image, release.deployment, home)
    daemon = daemon_of(docker_host)
    gpu_ids = release.gpus if plan.container.gpus else ()
    cpuset_cpus, cpuset_mems = (None, None) if limits.numa_node is None else numa_node(machine, limits.numa_node)
    planned = planned_spec(
        plan,
        deployment,
        name=name,
        image=plan.container.image,
        user=user,
        labels=labels(release, f"{plan.engine} {plan.engine_version}", home),
    )
    return replace(
        planned,
        gpu_ids=gpu_ids,
        cdi=hands_out(daemon, gpu_ids),
        groups=prerequisites.groups_of(machine, plan.container.devices),
        stable_seconds=restart.stable_seconds,
        backoff_seconds=restart.backoff_seconds,
        backoff_max_seconds=restart.backoff_max_seconds,
        secret_file=_copy_of_key(run, release, user),
        selinux=daemon.selinux,
        cache_volume=cache[0] if cache else None,
        cache_directory=CACHE_DIRECTORY if cache else "",
        cache_labels=cache[1] if cache else {},
        cpuset_cpus=cpuset_cpus,
        cpuset_mems=cpuset_mems,
        guard_directory=f"{release.directory}/guard",
        state_directory=f"{release.directory}/state",
        image_entrypoint=image.entrypoint,
    )


def container_owner(run: Run, machine: Machine | None = None) -> tuple[int, int]:
    """Who the server is in its container, as (uid, gid). machine: the host; None: that of the run."""
    machine = machine or run.machine
    owner = machine.status(run.plan.model_directory)
    assert owner is not None
    return container_user((machine.user_id, machine.group_id), (owner.uid, owner.gid))


def hands_out(daemon: Daemon, gpu_ids: tuple[str, ...]) -> bool:
    """Whether the daemon knows each of these GPUs as a CDI device: such GPUs survive a `systemctl daemon-reload`
    (https://github.com/NVIDIA/nvidia-container-toolkit/issues/1227)."""
    return bool(gpu_ids) and all(f"nvidia.com/gpu={each}" in daemon.cdi_devices for each in gpu_ids)


def numa_node(machine: Machine, number: int) -> tuple[str, str]:
    """CPUs and memory nodes for one NUMA node of the host, as Docker's --cpuset-cpus and --cpuset-mems take them.

    Raises OnecatError where there is no such node, or none with CPUs.
    """
    nodes = "/sys/devices/system/node"
    cpus = (machine.read(f"{nodes}/node{number}/cpulist") or b"").decode().strip()
    if cpus:
        return cpus, str(number)
    online = (machine.read(f"{nodes}/online") or b"").decode().strip()
    raise OnecatError(
        f"the host has no NUMA node {number} with CPUs",
        expected=f"one of its nodes: {online or 'it tells none'}",
        where="container.numa_node",
        next_steps=["see the nodes and their GPUs: nvidia-smi topo -m, or lscpu"],
    )


def _copy_of_key(run: Run, release: Release, user: tuple[int, int]) -> str | None:
    """A copy of the API key that the container's user may read; removed with the release."""
    key = prerequisites.read_secret(run.secret)
    if key is None:
        return None
    path = f"{release.directory}/secrets/api_key"
    run.machine.make_directory(f"{release.directory}/secrets")
    run.machine.write(path, key.encode(), 0o400, user if run.machine.user_id == 0 else None)
    return path

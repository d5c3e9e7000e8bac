"""The container of a plan: its image, what it sees of the host, and its devices. Pure."""

from __future__ import annotations

import re

from onecat.config import Profile
from onecat.planner.records import ContainerPlan, HostMount


def container_of(profile: Profile, served_name: str, gpus: int) -> ContainerPlan:
    return ContainerPlan(
        image=profile.image.tag,
        model_mount=f"/models/{_file_name(served_name)}",
        shm_bytes=profile.launch.container.shm_size_mib * 2**20,
        gpus=gpus if profile.hardware.accelerator == "nvidia" else 0,
        devices=_devices(profile, gpus),
        mounts=tuple(HostMount(each.path, each.target or each.path) for each in profile.launch.container.mounts),
    )


def _devices(profile: Profile, cards: int) -> tuple[str, ...]:
    """The device nodes that a container gets for its first `cards` accelerators."""
    nodes: list[str] = []
    for each in profile.launch.container.devices:
        nodes += [f"{each.path}{number}" for number in range(cards)] if each.per_accelerator else [each.path]
    return tuple(nodes)


def _file_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    return name or "model"

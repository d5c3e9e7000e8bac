"""What the steps of a fix script are chosen by."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onecat.doctor.context import Settings
from onecat.doctor.findings import Finding
from onecat.facts import Facts, Nvidia
from onecat.knowledge.hardware import Architecture, architecture

if TYPE_CHECKING:
    from onecat.config import Profile

CURRENT_BRANCH = 580
"""The driver branch for GPUs whose profile names none: the long-term one that still knows every architecture.

Source: https://docs.nvidia.com/datacenter/tesla/drivers/supported-drivers-and-cuda-toolkit-versions.html
"""


@dataclass(frozen=True)
class Situation:
    """One host, what it is to run, and the failures and warnings found on it."""

    facts: Facts
    profile: Profile | None
    settings: Settings
    trouble: tuple[Finding, ...]

    def has(self, *checks: str) -> bool:
        """Whether one of these checks found trouble."""
        return any(finding.check in checks for finding in self.trouble)

    @property
    def nvidia(self) -> Nvidia:
        """The NVIDIA facts, empty when there are none."""
        return self.facts.nvidia or Nvidia()

    @property
    def is_container(self) -> bool:
        """Whether the host is itself a container, whose kernel is not its own."""
        return bool(self.facts.operating_system and self.facts.operating_system.container)

    @property
    def wants_nvidia(self) -> bool:
        """Whether NVIDIA GPUs are to be used."""
        if self.profile is not None:
            return self.profile.hardware.accelerator == "nvidia"
        return bool(self.nvidia.gpus or self.nvidia.pci_devices)

    @property
    def wants_ascend(self) -> bool:
        """Whether Ascend NPUs are to be used."""
        if self.profile is not None:
            return self.profile.hardware.accelerator == "ascend"
        return bool(self.facts.ascend and (self.facts.ascend.npus or self.facts.ascend.pci_devices))

    @property
    def wants_docker(self) -> bool:
        """Whether the server is to run in a container."""
        if self.settings.runtime is not None:
            return self.settings.runtime == "container"
        if self.profile is not None:
            return self.profile.launch.runtime == "container"
        return self.wants_nvidia or self.wants_ascend

    @functools.cached_property
    def architecture(self) -> Architecture | None:
        """That of the GPUs, or of those that the profile is for."""
        seen = [gpu.compute_capability for gpu in self.nvidia.gpus if gpu.compute_capability]
        if not seen and self.profile is not None and self.profile.hardware.compute_capability is not None:
            seen = [self.profile.hardware.compute_capability]
        return architecture(min(seen, key=_number)) if seen else None

    @property
    def driver_branch(self) -> int:
        """The branch to install: the profile's, at most the last that knows the architecture."""
        limits = self.profile.doctor.driver if self.profile else None
        branch = (limits.recommended_branch if limits else None) or CURRENT_BRANCH
        last = self.architecture.last_driver_branch if self.architecture else None
        return min(branch, last) if last else branch

    @property
    def driver_flavour(self) -> Literal["open", "proprietary"] | None:
        """The kernel module to install: the open one where the architecture can use it; None when not known."""
        if self.architecture is None:
            return None
        return "open" if self.architecture.open_kernel_module == "supported" else "proprietary"

    @property
    def needs_driver(self) -> bool:
        """Whether a driver is to be installed in place of none or of the wrong one."""
        if not self.wants_nvidia or self.is_container or self.driver_flavour is None:
            return False
        nvidia = self.nvidia
        is_absent = nvidia.library_found is False and not (nvidia.kernel_module_version or nvidia.driver_version)
        return is_absent or self.has(
            "driver.loaded",
            "driver.minimum",
            "driver.last-branch",
            "driver.kernel-module",
            "driver.nouveau",
            "driver.module-refused",
            "driver.gpu-ignored",
        )


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split(".") if part.isdigit())

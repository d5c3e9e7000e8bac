"""What a check may look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onecat.facts import Facts, Gpu, Nvidia, PciDevice

if TYPE_CHECKING:
    from onecat.checkpoints.integrity import Assessment
    from onecat.config import Profile

RuntimeKind = Literal["native", "container"]


@dataclass(frozen=True)
class Settings:
    """What the deployment asks for.

    port: of the server. proxy_port: of nginx, None without a proxy. runtime: None leaves it to the profile.
    own_ports: on which onecat's own deployments on that host listen. own_names: of their containers and units.
    model: the path of the checkpoint that is to be served, None when none was named. assessment: what was read of it
    on this machine, None where it lies elsewhere. serve: the server's flags that
    onecat.yaml sets, with their values; None without one.
    """

    port: int = 8000
    proxy_port: int | None = 8080
    runtime: RuntimeKind | None = None
    own_ports: tuple[int, ...] = ()
    own_names: tuple[str, ...] = ()
    model: str | None = None
    assessment: Assessment | None = None
    serve: tuple[tuple[str, bool | int | float | str], ...] | None = None


@dataclass(frozen=True)
class Context:
    """One host, seen for one profile or for none."""

    facts: Facts
    profile: Profile | None = None
    settings: Settings = Settings()

    @property
    def runtimes(self) -> tuple[RuntimeKind, ...]:
        """The runtimes any of which would do; empty without a profile."""
        if self.settings.runtime is not None:
            return (self.settings.runtime,)
        return self.profile.launch.runtimes if self.profile else ()

    @property
    def wants_gpus(self) -> bool:
        """Whether the profile is for NVIDIA GPUs."""
        return self.profile is not None and self.profile.hardware.accelerator == "nvidia"

    @property
    def concerns_gpus(self) -> bool:
        """Whether it is a fault when NVIDIA GPUs do not work: for a profile that uses them, and without a profile."""
        return self.profile is None or self.wants_gpus

    @property
    def is_container(self) -> bool:
        """Whether the facts are those that a container sees, whose host is another matter."""
        system = self.facts.operating_system
        return system is not None and system.container is True

    @property
    def nvidia(self) -> Nvidia:
        """The NVIDIA facts, empty when there are none."""
        return self.facts.nvidia or Nvidia()

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that NVML can open."""
        return tuple(gpu for gpu in self.nvidia.gpus if gpu.error is None)

    @property
    def has_nvidia_hardware(self) -> bool:
        """Whether anything of NVIDIA's was seen: by the driver, on the PCI bus, or in the kernel log."""
        told = {"xid", "gpu-fell-off", "gpu-ignored", "gpu-init-failed", "gsp-timeout"}
        return bool(
            self.nvidia.gpus
            or self.nvidia.pci_devices
            or self.nvidia.pairs
            or any(event.kind in told for event in self.facts.kernel_events or ())
        )

    @property
    def driver_was_looked_for(self) -> bool:
        """Whether a probe looked for NVIDIA's driver on the host; captures only show what they happen to show."""
        return self.nvidia.library_found is not None or self.nvidia.nouveau_loaded is not None

    def pci_device(self, gpu: Gpu) -> PciDevice | None:
        """The sysfs side of a GPU."""
        return next((each for each in self.nvidia.pci_devices if each.address == gpu.pci_address), None)

    def why_absent(self, source: str, otherwise: str) -> str:
        """Why a fact is absent: the note of its source, or `otherwise`."""
        note = self.facts.note(source)
        return note.text if note else otherwise

"""Facts: what was observed on one host, as one typed, frozen, versioned record that round-trips through JSON.

In: nothing. Out: `Facts` and the records it is made of, `to_json` and `from_json`. Every field may be absent (None or
empty) because its source was missing, forbidden, slow or broken; then a `Note` says why. Checks must turn an absent
fact into `skip`, never into `pass`. Sizes are bytes unless a name says otherwise.
"""

from onecat.facts.ascend import Ascend, Npu
from onecat.facts.containers import CdiSpecification, ContainerToolkit, Docker, DockerContainer, DockerImage
from onecat.facts.document import SCHEMA, Facts, Note, from_json, record_from_json, to_json
from onecat.facts.engine import EngineEnvironment, ServerLog
from onecat.facts.machine import (
    AppArmor,
    Clock,
    Cpu,
    Filesystem,
    Interface,
    KernelEvent,
    Limit,
    Listener,
    Memory,
    OperatingSystem,
    SeLinux,
    SystemdUnit,
    Tools,
)
from onecat.facts.nvidia import FabricManager, Gpu, GpuPair, GpuProcess, LoadMeasurement, Nvidia, NvLink
from onecat.facts.pci import PciBus, PciDevice, PciPort

__all__ = [
    "SCHEMA",
    "AppArmor",
    "Ascend",
    "CdiSpecification",
    "Clock",
    "ContainerToolkit",
    "Cpu",
    "Docker",
    "DockerContainer",
    "DockerImage",
    "EngineEnvironment",
    "FabricManager",
    "Facts",
    "Filesystem",
    "Gpu",
    "GpuPair",
    "GpuProcess",
    "Interface",
    "KernelEvent",
    "Limit",
    "Listener",
    "LoadMeasurement",
    "Memory",
    "Note",
    "Npu",
    "NvLink",
    "Nvidia",
    "OperatingSystem",
    "PciBus",
    "PciDevice",
    "PciPort",
    "SeLinux",
    "ServerLog",
    "SystemdUnit",
    "Tools",
    "from_json",
    "record_from_json",
    "to_json",
]

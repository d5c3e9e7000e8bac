"""How the GPUs are connected."""

from __future__ import annotations

from dataclasses import replace

from onecat.facts import Cpu, Facts, GpuPair
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import HEALTHY, device, v100, with_gpus, with_nvidia


def pair(connection: str | None, read: str | None = "ok", write: str | None = "ok") -> Facts:
    """Two GPUs near one processor and what is between them."""
    return with_nvidia(pairs=(GpuPair(0, 1, connection, read, write),), pci_devices=(device(0), device(1, numa_node=0)))


def four(connections: dict[tuple[int, int], str], nodes: tuple[int, ...] = (0, 0, 1, 1)) -> Facts:
    """Four GPUs; every two that are not named are SYS."""
    addresses = [f"0000:{index}b:00.0" for index in range(4)]
    pairs = [(first, second) for first in range(4) for second in range(first + 1, 4)]
    return with_nvidia(
        gpus=tuple(replace(v100(0), index=index, pci_address=address) for index, address in enumerate(addresses)),
        pairs=tuple(GpuPair(*each, connections.get(each, "SYS"), "ok", "ok") for each in pairs),
        pci_devices=tuple(
            device(0, address=address, numa_node=node) for address, node in zip(addresses, nodes, strict=True)
        ),
    )


TWO_SOCKETS = {(0, 1): "PIX", (2, 3): "PIX"}
BRIDGES = {(0, 1): "NV4", (2, 3): "NV4"}
TORUS = {(first, second): "NV2" for first in range(4) for second in range(first + 1, 4)}

CASES: list[Case] = [
    case("topology.numa", "pass", "All on NUMA node 0", pair("PHB")),
    case("topology.numa", "info", "GPU 0 near 0, GPU 1 near 1", HEALTHY),
    case("topology.numa", "pass", "NVLink joins them all", with_nvidia(pairs=(GpuPair(0, 1, "NV6"),))),
    case("topology.numa", "pass", "one NUMA node", replace(HEALTHY, cpu=Cpu(numa_nodes=1))),
    case("topology.numa", "skip", "normal in virtual machines", with_nvidia(pci_devices=(device(0, numa_node=-1),))),
    case("topology.peer-access", "pass", "Every two of the 2 GPUs", HEALTHY),
    case("topology.peer-access", "info", "No peer access: GPU not supported", pair("PHB", "GPU not supported")),
    case(
        "topology.peer-access",
        "warn",
        "in spite of NVLink: disabled by regkey",
        pair("NV2", "ok", "disabled by regkey"),
    ),
    case("topology.peer-access", "skip", "is not known", pair("PHB", "unknown", "unknown")),
    case("topology.peer-access", "skip", "one GPU only", with_gpus(v100(0))),
    case("topology.layout", "pass", "NVLink between all 2 GPUs", pair("NV2")),
    case("topology.layout", "pass", "NVLink between all 4 GPUs", four(TORUS)),
    case("topology.layout", "info", "PCIe only between the GPUs", pair("PHB")),
    case("topology.layout", "info", "on different sockets (GPU 0; GPU 1)", HEALTHY),
    case("topology.layout", "info", "Groups by socket: GPU 0, 1; GPU 2, 3", four(TWO_SOCKETS)),
    # Some boards say SYS for every two GPUs.
    case("topology.layout", "info", "Groups by socket: GPU 0, 1; GPU 2, 3", four({})),
    case("topology.layout", "info", "Groups by NVLink: GPU 0, 1; GPU 2, 3", four(BRIDGES)),
    case("topology.layout", "skip", "connections between the GPUs are not known", pair(None)),
    case("topology.layout", "skip", "one GPU only", with_gpus(v100(0))),
]

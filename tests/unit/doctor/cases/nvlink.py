"""NVLink and its fabric."""

from __future__ import annotations

from typing import Any

from onecat.config import Profile
from onecat.facts import FabricManager, Facts, NvLink
from tests.unit.doctor.cases.form import Case, both, case
from tests.unit.doctor.examples import (
    A100,
    H200,
    HEALTHY,
    WITHOUT_GPU,
    h200,
    v100,
    with_gpus,
    with_hardware,
    with_nvidia,
    with_system,
)


def links(active: int, of: int = 18, **changes: Any) -> tuple[NvLink, ...]:
    """The NVLinks of a GPU, the first of them active."""
    return tuple(
        NvLink(link, link < active, 26.6, **{"replay_errors": 0, "crc_errors": 0, **changes}) for link in range(of)
    )


def board(second: dict[str, Any] | None = None, count: int = 18, **changes: Any) -> Facts:
    """A host with two H200, on NVSwitches."""
    healthy = {
        "gpus": (h200(0, nvlinks=links(count, count)), h200(1, **(second or {}))),
        "pairs": (),
        "pci_devices": (),
        "nvswitches": 4,
        "fabric_manager": FabricManager("580.95.05", True),
    }
    return with_nvidia(**{**healthy, **changes})


NOT_STARTED: dict[str, Any] = {"fabric_state": "not started", "fabric_status": None}
STOPPED = board(fabric_manager=FabricManager("580.95.05", False))
NVLINK: Profile = with_hardware(A100, interconnect="nvlink")

CASES: list[Case] = [
    both("nvlink.links", ("pass", "All 18 NVLinks active"), ("pass", "All 18 NVLinks active"), board()),
    both(
        "nvlink.links", ("pass", "All 18"), ("warn", "17 NVLinks active, 18 on another"), board({"nvlinks": links(17)})
    ),
    # Bridges of PCIe cards use some of the links: that is no fault.
    both("nvlink.links", ("pass", "All 12"), ("info", "0 of 12"), board({"nvlinks": links(0, 12)}, 12, nvswitches=0)),
    case("nvlink.links", "info", "4 of 12 NVLinks active", with_gpus(h200(0, nvlinks=links(4, 12)))),
    case("nvlink.links", "info", "0 of 18 NVLinks active", with_gpus(h200(0, nvlinks=links(0))), H200),
    case("nvlink.links", "warn", "No NVLink is active", with_gpus(h200(0, nvlinks=links(0))), NVLINK),
    case("nvlink.links", "skip", "has no NVLink", with_gpus(v100(0))),
    both("nvlink.errors", ("pass", "No errors"), ("info", "18 NVLinks"), board({"nvlinks": links(18, crc_errors=3)})),
    case("nvlink.errors", "skip", "has no NVLink", with_gpus(v100(0))),
    case("nvlink.fabric-manager", "pass", "The fabric manager runs", board()),
    case(
        "nvlink.fabric-manager", "fail", "does not run", board(NOT_STARTED, fabric_manager=FabricManager(None, False))
    ),
    case("nvlink.fabric-manager", "warn", "are set up still", STOPPED),
    case("nvlink.fabric-manager", "skip", "whether the fabric manager runs", board(fabric_manager=None)),
    case("nvlink.fabric-manager", "skip", "a container does not see", with_system(STOPPED, container=True)),
    case("nvlink.fabric-manager", "skip", "there is no NVSwitch", HEALTHY),
    case("nvlink.fabric-manager", "skip", "whether there are NVSwitches", with_nvidia(nvswitches=None)),
    case("nvlink.fabric-manager-version", "pass", "Both are 580.95.05", board()),
    case(
        "nvlink.fabric-manager-version",
        "fail",
        "The fabric manager is 570.124.06, the driver 580.95.05",
        board(fabric_manager=FabricManager("570.124.06", True)),
    ),
    case(
        "nvlink.fabric-manager-version",
        "info",
        "The fabric manager is 570.124.06",
        board(fabric_manager=FabricManager("570.124.06", False), nvswitches=0),
    ),
    case("nvlink.fabric-manager-version", "skip", "there is no fabric manager", HEALTHY),
    both("nvlink.fabric-state", ("pass", "has joined"), ("fail", "has not joined the fabric"), board(NOT_STARTED)),
    both("nvlink.fabric-state", ("pass", ""), ("fail", "could not join"), board({"fabric_status": "unknown error"})),
    both("nvlink.fabric-state", ("pass", ""), ("warn", "still joining"), board({"fabric_state": "in progress"})),
    case("nvlink.fabric-state", "info", "no NVSwitch is seen", with_gpus(h200(0, **NOT_STARTED)), H200),
    case("nvlink.fabric-state", "skip", "has no fabric", with_gpus(v100(0))),
    case("nvlink.fabric-state", "skip", "there is no NVIDIA GPU", WITHOUT_GPU),
]

"""Huawei Ascend NPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Npu:
    """One NPU as npu-smi lists it. name: as 910B4. health: OK, Warning, Alarm, Critical. hbm_*: its memory."""

    index: int
    name: str | None = None
    health: str | None = None
    pci_address: str | None = None
    temperature_celsius: int | None = None
    power_draw_watts: float | None = None
    utilization_percent: int | None = None
    hbm_total: int | None = None
    hbm_used: int | None = None
    process_ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Ascend:
    """driver_version, firmware_version, cann_version: as their version files state them.

    files: of the device nodes, driver files and environment scripts that serving needs, those that exist.
    pci_devices: addresses of Huawei accelerators on the bus.
    """

    npu_smi_version: str | None = None
    driver_version: str | None = None
    firmware_version: str | None = None
    cann_version: str | None = None
    pci_devices: tuple[str, ...] = ()
    files: tuple[str, ...] | None = None
    npus: tuple[Npu, ...] = ()

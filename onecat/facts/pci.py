"""PCI Express as sysfs and lspci show it, without any driver."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PciPort:
    """A bridge between a device and the processor.

    acs: the access control services that are switched on ("SrcValid", "ReqRedir", ...), empty when the port has them
    all off; None when not known (reading them needs root). aspm: as PciDevice.
    """

    address: str
    vendor_id: str | None = None
    device_id: str | None = None
    link_width_current: int | None = None
    link_width_max: int | None = None
    link_speed_current: str | None = None
    link_speed_max: str | None = None
    aspm: str | None = None
    acs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class PciDevice:
    """An NVIDIA PCI function of display class.

    path: the ports above it, the nearest first, the root port last. name: as lspci spells it.
    device_id: empty where lspci was run without -nn.
    link_speed_*: as sysfs spells them ("8.0 GT/s PCIe"). aspm: "disabled", or the states in use: "L0s", "L1", "L0s L1".
    errors_correctable, errors_fatal: totals of PCIe Advanced Error Reporting since boot.
    responds: false when its configuration space reads as all ones (it has fallen off the bus).
    """

    address: str
    vendor_id: str
    device_id: str
    name: str | None = None
    driver: str | None = None
    link_width_current: int | None = None
    link_width_max: int | None = None
    link_speed_current: str | None = None
    link_speed_max: str | None = None
    path: tuple[PciPort, ...] | None = None
    numa_node: int | None = None
    iommu_group: int | None = None
    aspm: str | None = None
    errors_correctable: int | None = None
    errors_nonfatal: int | None = None
    errors_fatal: int | None = None
    responds: bool | None = None


@dataclass(frozen=True)
class PciBus:
    """aspm_policy: the kernel's choice now (default, performance, powersave, powersupersave).

    iommu_groups: how many there are (0: no IOMMU at work).
    """

    aspm_policy: str | None = None
    iommu_groups: int | None = None

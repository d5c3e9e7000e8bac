"""PCIe links."""

from __future__ import annotations

from dataclasses import replace

from onecat.facts import Nvidia, PciPort
from tests.unit.doctor.cases.form import Case, both, case
from tests.unit.doctor.examples import WITHOUT_GPU, device, two, with_gpus, with_nvidia

CASES: list[Case] = [
    both("pcie.link-width", ("pass", "x16"), ("warn", "x4 of x16"), with_gpus(*two(pcie_width_current=4))),
    both(
        "pcie.link-width",
        ("pass", "x16"),
        ("warn", "sits in a slot with x8"),
        with_nvidia(
            gpus=two(pcie_width_current=8, pcie_width_max=8),
            pci_devices=(device(0), device(1, link_width_current=8, path=(PciPort("0000:ae:00.0", link_width_max=8),))),
        ),
    ),
    case(
        "pcie.link-width",
        "warn",
        "x1 of x16",
        replace(WITHOUT_GPU, nvidia=Nvidia(pci_devices=(device(0, driver=None, link_width_current=1),))),
    ),
    both("pcie.link-width", ("pass", ""), ("skip", "not known"), with_gpus(*two(pcie_width_current=None))),
    both(
        "pcie.replays", ("pass", "No PCIe replays"), ("info", "7 PCIe replays"), with_gpus(*two(pcie_replay_counter=7))
    ),
    both("pcie.replays", ("pass", ""), ("skip", "not known"), with_gpus(*two(pcie_replay_counter=None))),
]

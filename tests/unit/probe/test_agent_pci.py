"""The PCI bus as the agent reads it: ports, access control, power saving, errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.facts import Nvidia, PciDevice
from onecat.probe.agent.sources import pci
from tests.testbed.host_tree import HostTree, PciGpu, PciPort, config_space
from tests.unit.probe.test_agent import observe

SWITCHED = (
    PciPort("0000:3a:00.0", 16, 16, "8.0 GT/s PCIe", "16.0 GT/s PCIe", acs=("SrcValid",)),
    PciPort("0000:3b:00.0", 16, 16, "8.0 GT/s PCIe", "16.0 GT/s PCIe", acs=None),
    PciPort("0000:3c:08.0", 8, 8, "8.0 GT/s PCIe", "16.0 GT/s PCIe", acs=("SrcValid", "ReqRedir", "CmpltRedir")),
)


def nvidia(tree: HostTree, root: Path) -> Nvidia:
    facts = observe(tree.write(root)).nvidia
    assert facts is not None
    return facts


def device(gpu: PciGpu, root: Path) -> PciDevice:
    (found,) = nvidia(HostTree(gpus=(gpu,)), root).pci_devices
    return found


def test_the_path_to_the_processor_is_read_port_by_port(tmp_path: Path) -> None:
    path = device(PciGpu("0000:3d:00.0", path=SWITCHED), tmp_path).path
    assert path is not None
    assert [(port.address, port.link_width_max, port.acs) for port in path] == [
        ("0000:3c:08.0", 8, ("SrcValid", "ReqRedir", "CmpltRedir")),
        ("0000:3b:00.0", 16, ()),
        ("0000:3a:00.0", 16, ("SrcValid",)),
    ]
    assert (path[0].link_width_current, path[0].link_speed_max) == (8, "16.0 GT/s PCIe")


def test_a_device_right_at_the_processor_has_an_empty_path(tmp_path: Path) -> None:
    root = HostTree(gpus=()).write(tmp_path)
    place = root / "sys/devices/pci0000:00/0000:00:06.0"
    place.mkdir(parents=True)
    for name, text in {"vendor": "0x10de", "device": "0x2335", "class": "0x030200", "numa_node": "-1"}.items():
        (place / name).write_text(text)
    (root / "sys/bus/pci/devices/0000:00:06.0").symlink_to(place)
    facts = observe(root).nvidia
    assert facts is not None
    (found,) = facts.pci_devices
    assert (found.path, found.numa_node, found.responds, found.aspm) == ((), -1, None, None)


def test_without_root_access_control_is_unknown_and_a_note_says_how_to_learn_it(tmp_path: Path) -> None:
    facts = observe(HostTree(gpus=(PciGpu("0000:3b:00.0", aspm="L0s L1", config=64),)).write(tmp_path))
    assert facts.nvidia is not None
    (found,) = facts.nvidia.pci_devices
    assert found.path is not None and found.path[0].acs is None
    assert (found.aspm, found.responds) == ("L0s L1", True)
    note = facts.note("pci")
    assert note is not None
    assert (note.kind, note.text) == (
        "permission",
        "access control (ACS) of the PCI ports above the GPUs: needs root (--sudo)",
    )


@pytest.mark.parametrize("aspm", ["disabled", "L0s", "L1", "L0s L1"])
@pytest.mark.parametrize("config", [0, 64, 256, 4096])
def test_power_saving_of_a_link_is_known_with_and_without_root(aspm: str, config: int, tmp_path: Path) -> None:
    assert device(PciGpu("0000:3b:00.0", aspm=aspm, config=config), tmp_path).aspm == aspm


def test_a_device_that_has_fallen_off_the_bus_does_not_respond(tmp_path: Path) -> None:
    found = device(PciGpu("0000:3b:00.0", responds=False, width=63), tmp_path)
    assert (found.responds, found.link_width_current) == (False, None)


def test_error_totals_and_the_iommu_group_are_read(tmp_path: Path) -> None:
    tree = HostTree(gpus=(PciGpu("0000:3b:00.0", errors=(7, 1, 0), iommu_group=12),), iommu_groups=40)
    facts = observe(tree.write(tmp_path))
    assert facts.nvidia is not None and facts.pci is not None
    (found,) = facts.nvidia.pci_devices
    assert (found.errors_correctable, found.errors_nonfatal, found.errors_fatal) == (7, 1, 0)
    assert found.iommu_group == 12
    assert facts.pci.iommu_groups == 40


@pytest.mark.parametrize("policy", ["default", "performance", "powersave", "powersupersave"])
def test_the_policy_for_power_saving_is_the_one_in_brackets(policy: str, tmp_path: Path) -> None:
    facts = observe(HostTree(aspm_policy=policy).write(tmp_path))
    assert facts.pci is not None and facts.pci.aspm_policy == policy


def test_switches_of_nvlink_are_counted_and_are_no_gpus(tmp_path: Path) -> None:
    switches = tuple(PciGpu(f"0000:0{each}:00.0", "22a3", pci_class="0x068000") for each in range(5, 9))
    facts = nvidia(HostTree(gpus=(PciGpu("0000:1b:00.0", "2330"), *switches)), tmp_path)
    assert facts.nvswitches == 4
    assert [each.address for each in facts.pci_devices] == ["0000:1b:00.0"]


def test_devices_are_named_as_lspci_names_them(tmp_path: Path) -> None:
    table = (
        "# comment\n10dd  Enclave\n\t1db6  Wrong\n10de  NVIDIA Corporation\n"
        "\t1db5  GV100GL [Tesla V100 SXM2 32GB]\n\t\t10de 1249  A board\n\t1db6  GV100GL [Tesla V100 PCIe 32GB]\n"
        "10df  Emulex Corporation\n\t2235  Wrong\n"
    )
    gpus = (PciGpu("0000:3b:00.0"), PciGpu("0000:af:00.0", "2235"))
    found = nvidia(HostTree(gpus=gpus, other_files=(("usr/share/misc/pci.ids", table),)), tmp_path).pci_devices
    assert [each.name for each in found] == ["NVIDIA Corporation GV100GL [Tesla V100 PCIe 32GB]", None]


@given(st.binary(max_size=600), st.integers(0, 255))
def test_no_configuration_space_makes_the_agent_stumble(noise: bytes, where: int) -> None:
    config = bytearray(config_space(acs=()))
    config[where : where + len(noise)] = noise
    for space in (noise, bytes(config), bytes(config[:256]), bytes(config[:64])):
        assert pci.power_states("/nowhere", space) in (None, *pci.ASPM)
        services = pci.access_control(space)
        assert services is None or set(services) <= set(pci.ACS)

"""Real captures of others' machines, read where the shared folder is: what each one tells that matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.facts import Facts
from onecat.probe import read_hosts

SHARED = Path(__file__).parents[5] / "shared" / "fixtures"
GIB = 1024**3
MIB = 1024**2

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared captures are not on this machine")


def host(*names: str) -> Facts:
    (facts,) = read_hosts([str(SHARED / name) for name in names])
    return facts


CAPTURES = sorted(file for file in SHARED.glob("*/*") if file.suffix != ".url" and file.parent.name != "config")


@pytest.mark.parametrize("file", CAPTURES, ids=lambda file: file.name)
def test_every_capture_is_read(file: Path) -> None:
    facts = host(str(file.relative_to(SHARED)))
    assert facts.sources
    assert not [note for note in facts.notes if note.kind == "error"]


@pytest.mark.parametrize("file", sorted(SHARED.glob("config/*.json")), ids=lambda file: file.name)
def test_settings_of_models_are_no_captures(file: Path) -> None:
    with pytest.raises(OnecatError) as caught:
        read_hosts([str(file)])
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize("name", ["h200_driver580.txt", "h200_driver580.xml"])
def test_an_h200_as_text_and_as_xml(name: str) -> None:
    nvidia = host(f"nvidia-smi/{name}").nvidia
    assert nvidia is not None
    assert (nvidia.driver_version, nvidia.cuda_driver_version) == ("580.159.04", "13.0")
    (gpu,) = nvidia.gpus
    assert (gpu.index, gpu.name, gpu.pci_address) == (0, "NVIDIA H200", "0000:00:06.0")
    assert (gpu.memory_total, gpu.memory_used) == (143771 * MIB, 0)
    assert (gpu.pcie_generation_current, gpu.pcie_generation_max) == (5, 5)
    assert (gpu.pcie_width_current, gpu.pcie_width_max) == (16, 16)
    assert (gpu.ecc_enabled, gpu.ecc_uncorrected_volatile, gpu.ecc_uncorrected_aggregate) == (True, 0, 0)
    assert (gpu.retired_pages, gpu.retired_pages_pending) == (None, None)
    assert (gpu.remapped_rows_pending, gpu.remapped_rows_failure) == (False, False)
    assert (gpu.memory_clock_mhz, gpu.memory_clock_max_mhz, gpu.event_reasons) == (3201, 3201, 0)
    assert (gpu.power_limit_watts, gpu.temperature_celsius, gpu.temperature_slowdown_celsius) == (700.0, 39, None)
    assert (gpu.processes, gpu.process_ids) == ((), ())
    assert (gpu.mig_enabled, gpu.persistence_mode, gpu.fabric_state) == (False, True, None)


def test_text_and_xml_of_one_moment_say_the_same() -> None:
    text, xml = (host(f"nvidia-smi/h200_driver580.{form}").nvidia for form in ("txt", "xml"))
    assert text is not None and xml is not None
    moving = {"power_draw_watts": None}
    from dataclasses import replace

    assert replace(text.gpus[0], **moving) == replace(xml.gpus[0], **moving)


def test_the_notes_of_an_h200_host() -> None:
    facts = host("misc/h200_vm_host.txt")
    assert facts.operating_system is not None and facts.cpu is not None and facts.nvidia is not None
    assert (facts.operating_system.id, facts.operating_system.version_id) == ("ubuntu", "24.04")
    assert (facts.operating_system.kernel, facts.operating_system.architecture) == ("6.18.44-virt-gpu", "x86_64")
    assert (facts.cpu.logical_cores, facts.cpu.sockets, facts.cpu.numa_nodes) == (16, 1, 1)
    assert {"avx2", "avx512f", "amx_bf16"} <= set(facts.cpu.flags)
    assert (facts.nvidia.kernel_module_version, facts.nvidia.kernel_module_open) == ("580.159.04", True)
    assert [gpu.name for gpu in facts.nvidia.gpus] == ["NVIDIA H200"]
    assert facts.nvidia.device_files is not None and "/dev/nvidia-uvm" in facts.nvidia.device_files
    assert facts.pci is not None and facts.pci.aspm_policy == "default"
    shm = facts.filesystem("shm")
    assert shm is not None and shm.total == 128 * GIB
    assert facts.memory is not None and facts.memory.total is None  # free printed no unit
    assert facts.selinux is None and facts.kernel_events is None and facts.docker is None


def test_two_captures_of_one_host_are_one_gpu() -> None:
    facts = host("nvidia-smi/h200_driver580.txt", "misc/h200_vm_host.txt")
    assert facts.host == "captures"
    assert facts.nvidia is not None
    (gpu,) = facts.nvidia.gpus
    assert (gpu.uuid, gpu.pci_address) == ("GPU-00000009-0000-4000-8000-000000000009", "0000:00:06.0")


def test_a_composite_capture_keeps_the_idle_state_that_comes_first() -> None:
    (name,) = (file.name for file in SHARED.glob("nvidia-smi/*4080*.txt"))
    nvidia = host(f"nvidia-smi/{name}").nvidia
    assert nvidia is not None
    (gpu,) = nvidia.gpus
    assert gpu.name == "NVIDIA GeForce RTX 4080 SUPER"
    assert (gpu.performance_state, gpu.pcie_generation_current, gpu.pcie_generation_max) == (8, 1, 4)
    assert (gpu.ecc_enabled, gpu.ecc_uncorrected_volatile, gpu.memory_clock_application_mhz) == (None, None, None)
    assert (gpu.temperature_slowdown_celsius, gpu.event_reasons, gpu.compute_capability) == (96, 1, "8.9")
    assert gpu.process_ids == (2165,)
    assert gpu.processes is not None and len(gpu.processes) == 5
    assert gpu.nvlinks is None


def test_an_h100_with_its_nvlinks() -> None:
    (name,) = (file.name for file in SHARED.glob("nvidia-smi/*h100*.txt"))
    nvidia = host(f"nvidia-smi/{name}").nvidia
    assert nvidia is not None
    (gpu,) = nvidia.gpus
    assert (gpu.fabric_state, gpu.fabric_status, gpu.pcie_replay_counter) == ("completed", "success", 9)
    assert gpu.nvlinks is not None and len(gpu.nvlinks) == 18
    assert {link.gigabytes_per_second for link in gpu.nvlinks} == {26.562}


def test_mig_devices_are_counted_once() -> None:
    (name,) = (file.name for file in SHARED.glob("nvidia-smi/*mig*.txt"))
    nvidia = host(f"nvidia-smi/{name}").nvidia
    assert nvidia is not None
    assert [(gpu.name, gpu.mig_enabled, gpu.mig_devices) for gpu in nvidia.gpus] == [("NVIDIA H200", True, 5)]


@pytest.mark.parametrize(
    ("name", "gpu", "driver", "total"),
    [
        ("nvidia-smi-q-x_tesla-t4.xml", "Tesla T4", "515.105.01", 15360 * MIB),
        ("nvidia-smi-q-x_quadro-p400.xml", "Quadro P400", "418.43", 1998 * MIB),
        ("nvidia-smi-q-x_rtx-3080-v12.xml", "NVIDIA GeForce RTX 3080", "536.40", 10240 * MIB),
        ("nvidia-smi-q-x_rtx-3090-v12.xml", "NVIDIA GeForce RTX 3090", "525.147.05", 24576 * MIB),
        ("nvidia-smi-q-x_a100-sxm4-v12.xml", "NVIDIA A100-SXM4-80GB", "535.54.03", 80 * GIB),
        ("nvidia-smi-q-x_gtx-1070-ti.xml", "GeForce GTX 1070 Ti", None, 4096 * MIB),
    ],
)
def test_xml_of_many_versions(name: str, gpu: str, driver: str | None, total: int) -> None:
    nvidia = host(f"nvidia-smi/{name}").nvidia
    assert nvidia is not None
    assert nvidia.driver_version == driver
    assert [(each.name, each.memory_total) for each in nvidia.gpus] == [(gpu, total)]


def test_one_gpu_of_four_keeps_its_number() -> None:
    nvidia = host("nvidia-smi/nvidia-smi-q-x_a100-sxm4-v12.xml").nvidia
    assert nvidia is not None
    assert [(gpu.index, gpu.mig_devices, gpu.ecc_uncorrected_aggregate) for gpu in nvidia.gpus] == [(1, 4, 0)]


def test_a_large_verbose_lspci() -> None:
    nvidia = host("lspci/gpud_lspci-vvv_lspci-vvv").nvidia
    assert nvidia is not None
    assert nvidia.nvswitches == 4
    assert len(nvidia.pci_devices) == 8
    for device in nvidia.pci_devices:
        assert (device.device_id, device.link_width_current, device.link_width_max) == ("2330", 16, 16)
        assert (device.link_speed_current, device.aspm, device.responds) == ("32.0 GT/s PCIe", "disabled", True)
        assert device.path is not None and len(device.path) == 3
        assert all(port.acs == () for port in device.path[:2])
    assert [port.address for port in nvidia.pci_devices[0].path or ()] == [
        "0000:17:01.0",
        "0000:16:00.0",
        "0000:15:01.0",
    ]


def test_a_short_lspci_of_domains() -> None:
    nvidia = host("lspci/gpud_lspci.nn.a100").nvidia
    assert nvidia is not None
    assert nvidia.nvswitches == 6
    assert [device.device_id for device in nvidia.pci_devices] == ["20b2"] * 8
    assert nvidia.pci_devices[0].path is None


def test_nvlinks_of_a_cut_off_listing() -> None:
    nvidia = host("lspci/gpud_nvidia-smi.nvlink.status.a100").nvidia
    assert nvidia is not None
    assert len(nvidia.gpus) >= 4
    assert all(link.active for gpu in nvidia.gpus for link in gpu.nvlinks or ())


def test_xid_119_is_counted() -> None:
    events = host("dmesg/gpud_dmesg-with-xid-119.log_xid").kernel_events
    assert events is not None
    assert [(each.kind, each.xid, each.address, each.count) for each in events] == [
        ("xid", 119, "0000:9b:00.0", 5),
        ("gsp-timeout", None, "0000:9b:00.0", 1),
    ]


def test_a_topology_with_peer_access() -> None:
    nvidia = host("topo/topo_and_p2p_club1229_2x5090_PHB_GNS.txt").nvidia
    assert nvidia is not None
    (pair,) = nvidia.pairs
    assert (pair.connection, pair.peer_read, pair.peer_write) == ("PHB", "GPU not supported", "GPU not supported")


def test_a_topology_of_which_rows_are_missing() -> None:
    nvidia = host("topo/topo_nmvllm404_8xa100_nv12_PARTIAL.txt").nvidia
    assert nvidia is not None
    assert {pair.connection for pair in nvidia.pairs} == {"NV12"}
    assert len(nvidia.pairs) == 18


def test_collect_env_of_two_layouts() -> None:
    new = host("collect_env/collect_env_1cat8_4xV100SXM2_16GB_PARTIAL.txt")
    old = host("collect_env/collect_env_vllm4187_V100PCIE16_PARTIAL.txt")
    assert new.nvidia is not None and old.nvidia is not None
    assert [gpu.name for gpu in new.nvidia.gpus] == ["Tesla V100-SXM2-16GB"] * 3
    assert [gpu.name for gpu in old.nvidia.gpus] == ["Tesla V100-PCIE-16GB"]
    assert old.nvidia.driver_version == "495.29.05"
    assert (new.engines[0].torch_version, new.engines[0].torch_cuda_version) == ("2.9.1+cu128", "12.8")
    assert (old.engines[0].compiler_version, old.engines[0].python_version) == ("11.8.89", "3.9.19")


def test_df_of_a_container_with_a_small_shm() -> None:
    shm = host("collect_env/df_shm_vllm789.txt").filesystem("shm")
    assert shm is not None
    assert (shm.total, shm.available) == (64 * MIB, 45 * MIB)


def test_a_dump_of_nvml_calls_agrees_with_nvidia_smi_of_the_same_host() -> None:
    dump, text = host("misc/h200_nvml.json").nvidia, host("nvidia-smi/h200_driver580.txt").nvidia
    assert dump is not None and text is not None
    (one,), (other,) = dump.gpus, text.gpus
    assert (one.name, one.uuid, one.memory_total) == (other.name, other.uuid, other.memory_total)
    assert (one.compute_capability, one.memory_used) == ("9.0", None)

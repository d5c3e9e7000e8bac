"""Doctor on GPU hosts: the real command, agent, pynvml and ctypes, over an NVML library that needs no GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.command import Onecat, Result
from tests.testbed.host_tree import KERNEL_LOG, HostTree, PciGpu, PciPort
from tests.testbed.nvml import library as nvml
from tests.testbed.nvml.library import Host, changed, install, load_host

GPU_AREAS = ("gpu.", "driver.", "pcie.")
NOT_OF_V100 = {"gpu.row-remapping", "gpu.mig", "gpu.gsp", "gpu.bar1"}
NOT_WITHOUT_LOAD = {"pcie.bandwidth", "pcie.generation"}
NOT_IN_THE_TREE = {"driver.next-boot", "gpu.arch-in-image", "pcie.acs"}
# The disk and the Docker daemon are those of the machine that runs the tests.
OF_THIS_MACHINE = ("--skip", "disk.*", "--skip", "docker.daemon")
X4 = HostTree(gpus=(PciGpu("0000:3b:00.0"), PciGpu("0000:af:00.0", width=4)))
H200 = HostTree(
    gpus=(PciGpu("0000:00:06.0", "2335", slot_width_max=None, speed="32.0 GT/s PCIe", speed_max="32.0 GT/s PCIe"),),
    driver="580.159.04",
    driver_is_open=True,
    container=True,
)
NVSWITCH = HostTree(
    gpus=tuple(
        PciGpu(
            f"0000:{bus}:00.0",
            "2330",
            speed="32.0 GT/s PCIe",
            speed_max="32.0 GT/s PCIe",
            numa_node=number // 4,
            path=(PciPort(f"0000:{int(bus, 16) - 1:02x}:00.0"),),
        )
        for number, bus in enumerate(("1b", "43", "52", "61", "9d", "c3", "d1", "df"))
    )
    + tuple(PciGpu(f"0000:0{bus}:00.0", "22a3", pci_class="0x068000", driver="nvidia-nvswitch") for bus in range(5, 9)),
    driver_is_open=True,
    device_files=(*(f"nvidia{number}" for number in range(8)), "nvidiactl", "nvidia-uvm", "nvidia-nvswitchctl"),
    processes=((900, "nv-fabricmanage"),),
)
A100 = HostTree(
    gpus=tuple(
        PciGpu(f"0000:{bus}:00.0", "20b0", speed="16.0 GT/s PCIe", speed_max="16.0 GT/s PCIe", numa_node=0)
        for bus in ("07", "0f")
    ),
    driver="535.261.03",
)


@pytest.fixture
def doctor(onecat: Onecat, nvml_library: Path, tmp_path: Path) -> Callable[..., Result]:
    """Runs `onecat doctor` on a described host: its NVML and its /proc, /sys and /etc."""

    def run(host: Host, tree: HostTree, *arguments: str) -> Result:
        installed = install(nvml_library, tmp_path / "lib", host)
        root = tree.write(tmp_path / "root")
        return onecat("doctor", "--root", root, *OF_THIS_MACHINE, *arguments, environment=installed.environment)

    return run


def found(result: Result, *statuses: str) -> list[dict[str, Any]]:
    (host,) = result.json()["hosts"]
    return [finding for finding in host["findings"] if finding["status"] in statuses]


def faults(result: Result) -> set[tuple[str, str, str]]:
    """What is wrong on the host: check, status and subject."""
    return {(each["check"], each["status"], each["subject"]) for each in found(result, "fail", "warn")}


def said(result: Result) -> set[str]:
    """The checks that say anything at all, of any host: how its GPUs lie is worth telling and no fault."""
    return {each["check"] for each in found(result, "fail", "warn", "info")} - {"topology.layout", "topology.numa"}


def the_finding(result: Result, check: str) -> dict[str, Any]:
    (finding,) = [each for each in found(result, "fail", "warn", "info", "pass", "skip") if each["check"] == check]
    return finding


def test_a_link_at_x4_is_the_one_warning_about_two_v100(doctor: Callable[..., Result]) -> None:
    result = doctor(changed("v100x2", nvml.narrow(1)), X4, "--profile", "v100x2-pcie", "--json").expect(0)
    document = result.json()
    assert document["schema"] == "onecat.doctor/1"
    assert document["profile"] == "v100x2-pcie"
    assert said(result) == {"pcie.link-width"}
    (warning,) = found(result, "warn")
    assert (warning["check"], warning["status"], warning["subject"]) == ("pcie.link-width", "warn", "GPU 1")
    assert warning["title"] == "The link runs at x4 of x16"
    assert warning["evidence"] == ["link now: x4, card: x16, slot: x16, at 0000:af:00.0"]
    assert warning["fix"] and warning["why"] and warning["source"]
    passed = {finding["check"] for finding in found(result, "pass")}
    assert passed >= {
        *("driver.loaded", "driver.nouveau", "driver.nvml", "driver.minimum", "driver.last-branch"),
        *("driver.kernel-module", "gpu.present", "gpu.reachable", "gpu.count", "gpu.model", "gpu.compute-capability"),
        *("gpu.homogeneous", "gpu.memory-total", "gpu.memory-held", "gpu.ecc-errors", "gpu.retired-pages"),
        *("gpu.slowdown", "gpu.memory-clock", "pcie.link-width", "pcie.replays", "memory.total", "probe.sources"),
    }
    skipped = {finding["check"] for finding in found(result, "skip") if finding["check"].startswith(GPU_AREAS)}
    assert not passed & skipped
    assert skipped <= NOT_OF_V100 | NOT_WITHOUT_LOAD | NOT_IN_THE_TREE


def test_a_warning_makes_the_answer_no_only_when_asked(doctor: Callable[..., Result]) -> None:
    arguments = ("--profile", "v100x2-pcie", "--fail-on", "warn")
    text = doctor(changed("v100x2", nvml.narrow(1)), X4, *arguments).expect(1).stdout
    assert "warn  GPU 1: The link runs at x4 of x16 [pcie.link-width]" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_healthy_v100_have_nothing_to_say(doctor: Callable[..., Result]) -> None:
    result = doctor(load_host("v100x2"), HostTree(), "--profile", "v100x2-pcie", "--json").expect(0)
    assert said(result) == set()


def test_a_healthy_h200_has_nothing_to_say(doctor: Callable[..., Result]) -> None:
    result = doctor(load_host("h200"), H200, "--profile", "h200", "--json", "--load").expect(0)
    assert said(result) == {"os.virtualization"}
    passed = {finding["check"] for finding in found(result, "pass")}
    assert passed >= {
        "pcie.bandwidth",
        "pcie.generation",
        "gpu.row-remapping",
        "gpu.temperature",
        "driver.kernel-module",
    }


def test_idle_clocks_and_generation_are_no_evidence(doctor: Callable[..., Result]) -> None:
    def idle(host: Host) -> None:
        for device in host["devices"]:
            device["pcie"]["generation"] = 1
            device["performance_state"] = 8
            device["clocks"]["memory"] = 405

    result = doctor(changed("v100x2", idle), HostTree(), "--profile", "v100x2-pcie", "--json").expect(0)
    assert said(result) == set()


def test_a_driver_update_without_a_reboot_is_named(doctor: Callable[..., Result]) -> None:
    def mismatch(host: Host) -> None:
        host["errors"] = {"nvmlInit": 18}

    tree = HostTree(driver="580.82.07")
    result = doctor(changed("v100x2", mismatch), tree, "--profile", "v100x2-pcie", "--json").expect(1)
    assert faults(result) == {("driver.versions", "fail", "")}
    failure = the_finding(result, "driver.versions")
    assert failure["fix"][0] == "sudo reboot"
    answer = the_finding(result, "driver.nvml")
    assert answer["title"].endswith("(follows from driver.versions)")
    assert answer["evidence"] == [
        "NVML: Driver/library version mismatch",
        "kernel module: 580.82.07",
        "user-space library: 580.95.05",
    ]
    assert the_finding(result, "gpu.count")["status"] == "skip"


def test_a_hanging_gpu_costs_the_time_limit_and_only_its_own_facts(doctor: Callable[..., Result]) -> None:
    def hang(host: Host) -> None:
        host["devices"][1]["hang"] = ["nvmlDeviceGetTemperature"]

    started = time.monotonic()
    result = doctor(changed("v100x2", hang), HostTree(), "--profile", "v100x2-pcie", "--timeout", "1", "--json")
    assert time.monotonic() - started < 8
    result.expect(1)
    failure = the_finding(result, "driver.nvml")
    assert (failure["status"], failure["title"]) == ("fail", "The driver hangs")
    assert failure["evidence"][0] == "no answer within 1 s while in nvmlDeviceGetTemperature of GPU 1"
    assert the_finding(result, "gpu.model")["subject"] == "GPU 0"
    assert the_finding(result, "memory.total")["status"] == "pass"


def test_a_gpu_that_fell_off_the_bus_is_named_with_its_xid(doctor: Callable[..., Result]) -> None:
    log = KERNEL_LOG + (
        "[ 9000.512345] NVRM: Xid (PCI:0000:af:00): 79, pid=4242, name=python3, GPU has fallen off the bus.\n"
    )
    tree = HostTree(kernel_log=log)
    result = doctor(changed("v100x2", nvml.lost(1)), tree, "--profile", "v100x2-pcie", "--json").expect(1)
    assert faults(result) == {("gpu.fallen-off-bus", "fail", "GPU 1"), ("gpu.count", "fail", "")}
    follows = {each["check"] for each in found(result, "info") if "follows from gpu.fallen-off-bus" in each["title"]}
    assert follows == {"gpu.reachable", "gpu.xid"}


def test_an_old_driver_without_newer_functions_still_tells_what_it_knows(doctor: Callable[..., Result]) -> None:
    missing = 13

    def old(host: Host) -> None:
        host["driver_version"] = "470.256.02"
        host["errors"] = {
            "nvmlDeviceGetCurrentClocksEventReasons": missing,
            "nvmlDeviceGetMemoryInfo_v2": missing,
            "nvmlDeviceGetComputeRunningProcesses_v3": missing,
        }
        host["devices"][0]["event_reasons"] = 0x40

    tree = HostTree(driver="470.256.02")
    result = doctor(changed("v100x2", old), tree, "--profile", "v100x2-pcie", "--json").expect(1)
    assert {(each["check"], each["subject"]) for each in found(result, "fail", "warn")} == {
        ("driver.minimum", ""),
        ("gpu.slowdown", "GPU 0"),
    }
    skipped = {finding["check"] for finding in found(result, "skip") if finding["check"].startswith(GPU_AREAS)}
    assert skipped <= NOT_OF_V100 | NOT_WITHOUT_LOAD | NOT_IN_THE_TREE | {"driver.end-of-life"}


def test_worn_memory_and_foreign_programs_are_found(doctor: Callable[..., Result]) -> None:
    def worn(host: Host) -> None:
        second = host["devices"][1]
        nvml.pages_retired(0)(host)
        second["memory"]["used"] = 8 << 30
        second["processes"] = [{"pid": 4242, "memory": 8 << 30}]

    result = doctor(changed("v100x2", worn), HostTree(), "--profile", "v100x2-pcie", "--json").expect(1)
    assert faults(result) == {
        ("gpu.retired-pages", "warn", "GPU 0"),
        ("gpu.ecc-errors", "fail", "GPU 0"),
        ("gpu.memory-held", "warn", "GPU 1"),
    }
    (held,) = [each for each in found(result, "warn") if each["check"] == "gpu.memory-held"]
    assert any("4242 python3" in line or "python3 4242" in line or "4242" in line for line in held["evidence"])


def test_facts_read_back_give_the_same_findings(
    doctor: Callable[..., Result], onecat: Onecat, nvml_library: Path, tmp_path: Path
) -> None:
    environment = install(nvml_library, tmp_path / "other", changed("v100x2", nvml.narrow(1))).environment
    root = X4.write(tmp_path / "other-root")
    live = onecat("doctor", "--root", root, *OF_THIS_MACHINE, "--json", environment=environment).expect(0)
    saved = tmp_path / "gpu1.json"
    saved.write_text(onecat("facts", "--root", root, "--json", environment=environment).expect(0).stdout)
    again = onecat("doctor", "--from", saved, *OF_THIS_MACHINE, "--json").expect(0)
    assert again.json()["hosts"][0]["name"] == "gpu1"
    assert again.json()["hosts"][0]["findings"] == live.json()["hosts"][0]["findings"]


def test_a_v100_under_a_driver_that_dropped_it_is_explained(doctor: Callable[..., Result]) -> None:
    def no_devices(host: Host) -> None:
        host.update(driver_version="595.45.04", devices=[])

    tree = HostTree(driver="595.45.04", driver_is_open=True)
    result = doctor(changed("v100x2", no_devices), tree, "--profile", "v100x2-pcie", "--json").expect(1)
    assert {each["check"] for each in found(result, "fail", "warn")} == {
        "driver.last-branch",
        "driver.kernel-module",
    }


def test_one_hanging_gpu_of_eight_is_the_one_that_does_not_answer(doctor: Callable[..., Result]) -> None:
    hung = changed("h100x8", nvml.hanging(2, "nvmlDeviceGetTemperature"))
    result = doctor(hung, NVSWITCH, "--timeout", "1", "--json").expect(1)
    assert ("gpu.reachable", "fail", "GPU 2") in faults(result)
    assert {subject for _, _, subject in faults(result) if subject.startswith("GPU")} == {"GPU 2"}
    answering = [each for each in found(result, "pass") if each["check"] == "gpu.reachable"]
    assert len(answering) == 7


def test_a_healthy_nvswitch_host_has_nothing_to_say(doctor: Callable[..., Result]) -> None:
    result = doctor(load_host("h100x8"), NVSWITCH, "--json").expect(0)
    assert said(result) == set()
    passed = {finding["check"] for finding in found(result, "pass")}
    assert passed >= {"nvlink.links", "nvlink.errors", "nvlink.fabric-state", "nvlink.fabric-manager"}


def test_a_fabric_that_is_not_ready_is_named(doctor: Callable[..., Result]) -> None:
    tree = replace(NVSWITCH, processes=())
    result = doctor(changed("h100x8", nvml.fabric(1)), tree, "--json", "--fail-on", "warn").expect(1)
    assert {check for check, _, _ in faults(result)} == {"nvlink.fabric-manager"}
    states = [each for each in found(result, "info") if each["check"] == "nvlink.fabric-state"]
    assert states and all(each["title"].endswith("(follows from nvlink.fabric-manager)") for each in states)


def test_rows_that_wait_and_rows_that_cannot_be_remapped_are_told_apart(doctor: Callable[..., Result]) -> None:
    host = changed("a100x2", nvml.rows_remapped(0, pending=True), nvml.rows_remapped(1, failure=True))
    result = doctor(host, A100, "--json").expect(1)
    assert faults(result) == {("gpu.row-remapping", "warn", "GPU 0"), ("gpu.row-remapping", "fail", "GPU 1")}


def test_under_load_a_slow_link_shows_and_an_idle_one_is_none(doctor: Callable[..., Result]) -> None:
    def slow(host: Host) -> None:
        host["devices"][1]["copies"]["megabytes_per_second"] = 2900

    result = doctor(changed("v100x2", slow), HostTree(), "--load", "--json", "--profile", "v100x2-pcie").expect(0)
    assert faults(result) == {("pcie.bandwidth", "warn", "GPU 1")}
    assert "pcie.generation" in {finding["check"] for finding in found(result, "pass")}


def test_load_leaves_a_gpu_that_works_alone(doctor: Callable[..., Result]) -> None:
    def busy(host: Host) -> None:
        host["devices"][0]["processes"] = [{"pid": 4242, "memory": 1 << 30}]

    tree = HostTree(processes=((4242, "python3"),))
    result = doctor(changed("v100x2", busy), tree, "--load", "--json").expect(0)
    skipped = [each for each in found(result, "skip") if each["check"] == "pcie.bandwidth"]
    assert [(each["subject"], "python3 4242" in each["title"]) for each in skipped] == [("GPU 0", True)]


@pytest.mark.parametrize("pages", [0, 3])
def test_every_structure_has_the_layout_that_pynvml_declares(nvml_library: Path, tmp_path: Path, pages: int) -> None:
    """Through pynvml alone, so that a wrong layout cannot be hidden by the agent."""
    import subprocess
    import sys

    def change(host: Host) -> None:
        device = host["devices"][0]
        device["retired_pages"]["double_bit"] = list(range(4096, 4096 + pages))
        device["processes"] = [{"pid": 100 + each, "memory": 1 << 33} for each in range(pages)]

    installed = install(nvml_library, tmp_path / "lib", changed("v100x2", change))
    program = """if True:
        import json, pynvml as n
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByPciBusId("00000000:3b:00.0")
        assert n.nvmlDeviceGetIndex(h) == 0
        one, two, bar, pci = n.nvmlDeviceGetMemoryInfo(h), n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2), \
            n.nvmlDeviceGetBAR1MemoryInfo(h), n.nvmlDeviceGetPciInfo(h)
        print(json.dumps({
            "memory": [one.total, one.free, one.used, two.total, two.reserved, two.free, two.used],
            "bar1": [bar.bar1Total, bar.bar1Free, bar.bar1Used],
            "pci": [pci.busId, pci.busIdLegacy, pci.domain, pci.bus, pci.device, pci.pciDeviceId],
            "pages": [len(n.nvmlDeviceGetRetiredPages(h, 1)), len(n.nvmlDeviceGetRetiredPages_v2(h, 1))],
            "processes": [[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(h)],
            "temperature": [n.nvmlDeviceGetTemperature(h, 0), n.nvmlDeviceGetTemperatureV(h, 0)],
            "clocks": [n.nvmlDeviceGetClockInfo(h, 2), n.nvmlDeviceGetMaxClockInfo(h, 1)],
            "utilization": n.nvmlDeviceGetUtilizationRates(h).memory,
            "version": n.nvmlSystemGetNVMLVersion(),
        }))
        n.nvmlShutdown()
    """
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, env=installed.environment, check=True, capture_output=True, text=True).stdout
    total, reserved = 34359738368, 285212672
    assert json.loads(output) == {
        "memory": [total, total - reserved, reserved, total, reserved, total - reserved, 0],
        "bar1": [total, total - 2621440, 2621440],
        "pci": ["00000000:3B:00.0", "0000:3B:00.0", 0, 0x3B, 0, 0x1DB610DE],
        "pages": [pages, pages],
        "processes": [[100 + each, 1 << 33] for each in range(pages)],
        "temperature": [34, 34],
        "clocks": [877, 1380],
        "utilization": 0,
        "version": "13.580.95.05",
    }

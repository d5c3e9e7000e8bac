"""One fault, told once: hosts with one thing wrong, and the one finding that tells it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onecat.doctor import Finding, all_checks, examine
from onecat.doctor.consequences import CONSEQUENCES, told_once
from onecat.facts import EngineEnvironment, FabricManager, Facts, Gpu, KernelEvent, Note, SystemdUnit
from onecat.facts.machine import Listener
from tests.unit.doctor.cases.confinement import ENFORCING, MODULE_DENIED
from tests.unit.doctor.examples import COMPLETE, H200, a100, device, h200, v100, with_events, with_nvidia
from tests.unit.doctor.host_examples import known

FELL_OFF = (
    KernelEvent("xid", "NVRM: Xid (PCI:0000:af:00): 79, GPU has fallen off the bus.", "0000:af:00.0", 79),
    KernelEvent("gpu-fell-off", "NVRM: GPU 0000:af:00.0: GPU has fallen off the bus.", "0000:af:00.0"),
    KernelEvent(
        "xid", "NVRM: Xid (PCI:0000:af:00): 154, 0x0 (None) to 0x2 (Node Reboot Required)", "0000:af:00.0", 154
    ),
    KernelEvent("gpu-init-failed", "NVRM: GPU 0000:af:00.0: RmInitAdapter failed!", "0000:af:00.0"),
)
LOST = Gpu(1, "unknown", error="GPU is lost")
IGNORED = KernelEvent("gpu-ignored", "NVRM: 580.xx Legacy drivers. The driver will ignore this GPU.", "0000:af:00.0")
ABSENT = {"gpus": (), "driver_version": None, "library_version": None, "kernel_module_version": None}
WITHOUT_MODULE = {**ABSENT, "kernel_module_open": None, "pci_devices": (device(0, driver=None), device(1, driver=None))}
HELD_BY_NOUVEAU = {
    **ABSENT,
    "nouveau_loaded": True,
    "pci_devices": (device(0, driver="nouveau"), device(1, driver="nouveau")),
}
NO_CUDA = EngineEnvironment("host", torch_version="2.10.0", torch_cuda_version="12.8", cuda_available=False)
MISMATCH = with_nvidia(
    gpus=(),
    library_version="580.105.08",
    kernel_module_file_version="580.105.08",
    nvml_error="Driver/library version mismatch",
)
BOARD = tuple(h200(index, fabric_state="in progress", fabric_status=None) for index in range(2))


def hosts() -> dict[str, tuple[Facts, set[tuple[str, str]]]]:
    """Hosts by what is wrong with them, and what may be told as a failure: check and subject."""
    lost = with_events(*FELL_OFF, gpus=(v100(0), LOST))
    answers = KernelEvent("xid", "NVRM: Xid (PCI:0000:af:00): 119, Timeout", "0000:af:00.0", 119)
    silent = KernelEvent("gsp-timeout", "NVRM: GSP RPC", "0000:af:00.0")
    bits = KernelEvent("xid", "NVRM: Xid (PCI:0000:af:00): 48, DBE", "0000:af:00.0", 48)
    nvlink = {"gpus": BOARD, "nvswitches": 4, "fabric_manager": FabricManager("580.95.05", running=False)}
    vllm = SystemdUnit("vllm.service", settings=(("ExecStart", "/usr/bin/vllm serve m --port 8000"),))
    return {
        "a lost GPU": (lost, {("gpu.fallen-off-bus", "GPU 1")}),
        "two lost GPUs": (
            with_events(*FELL_OFF, replace(FELL_OFF[0], address="0000:3b:00.0"), gpus=(replace(LOST, index=0), LOST)),
            {("gpu.fallen-off-bus", "0000:af:00.0"), ("gpu.fallen-off-bus", "0000:3b:00.0")},
        ),
        "NVML calls a GPU lost": (
            with_events(*FELL_OFF, gpus=(), nvml_error="GPU is lost"),
            {("gpu.fallen-off-bus", "0000:af:00.0")},
        ),
        "a silent GSP": (
            with_events(answers, silent, gpus=(a100(0), a100(1, temperature_celsius=None))),
            {("gpu.gsp", "GPU 1")},
        ),
        "bad memory": (
            with_events(bits, gpus=(v100(0), v100(1, ecc_uncorrected_volatile=2))),
            {("gpu.ecc-errors", "GPU 1")},
        ),
        "an updated driver": (replace(MISMATCH, engines=(NO_CUDA,)), {("driver.versions", "")}),
        "a driver that is too new": (
            with_events(IGNORED, **{**ABSENT, "cuda_library_version": None, "kernel_module_version": "595.45.04"}),
            {("driver.last-branch", "Volta")},
        ),
        "the open module": (
            with_events(IGNORED, gpus=(), kernel_module_open=True),
            {("driver.kernel-module", "Volta")},
        ),
        "no driver": (replace(COMPLETE, nvidia=with_nvidia(**WITHOUT_MODULE).nvidia), {("driver.loaded", "")}),
        "nouveau": (with_nvidia(**HELD_BY_NOUVEAU), {("driver.nouveau", "")}),
        "an unsigned module": (
            with_events(KernelEvent("module-refused", "Loading of unsigned module is rejected"), **WITHOUT_MODULE),
            {("driver.module-refused", "")},
        ),
        "a module that SELinux refuses": (
            replace(with_events(KernelEvent("selinux-denial", MODULE_DENIED), **WITHOUT_MODULE), selinux=ENFORCING),
            {("selinux.denials", "/opt/driver/nvidia.ko")},
        ),
        "no fabric manager": (with_nvidia(**nvlink), {("nvlink.fabric-manager", "")}),
        "a driver that hangs": (
            replace(with_nvidia(gpus=()), notes=(Note("nvml", "timeout", "NVML did not answer within 5 s"),)),
            {("driver.nvml", "")},
        ),
        "a port in use": (
            known(systemd_units=(vllm,), listeners=(Listener("0.0.0.0", 8000, "vllm"),)),
            {("serving.units", "vllm.service")},
        ),
    }


@pytest.mark.parametrize("name", hosts())
def test_a_host_with_one_fault_is_told_it_once(name: str) -> None:
    facts, expected = hosts()[name]
    findings = examine(facts, skip=["serving.start-limit", "serving.unit-restart", "gpu.stuck-process"])
    bad = {(finding.check, finding.subject) for finding in findings if finding.status in ("fail", "warn")}
    assert bad == expected


def test_what_follows_names_the_fault_and_keeps_what_was_seen() -> None:
    facts = hosts()["a lost GPU"][0]
    (xid,) = (each for each in examine(facts, only=["gpu.*"]) if each.title.startswith("Xid 79"))
    assert (xid.status, xid.subject) == ("info", "GPU 1")
    assert xid.title == "Xid 79: The GPU has fallen off the bus (follows from gpu.fallen-off-bus)"
    assert xid.evidence == (FELL_OFF[0].text,)
    assert xid.fix == ("put gpu.fallen-off-bus right first",)


def test_a_check_alone_tells_what_it_sees() -> None:
    facts = hosts()["a lost GPU"][0]
    assert {each.status for each in examine(facts, only=["gpu.reachable"])} == {"pass", "fail"}


def test_the_fault_of_one_gpu_explains_nothing_of_another() -> None:
    lost = Finding("gpu.fallen-off-bus", "fail", "The GPU has fallen off the bus", "GPU 0")
    other = Finding("gpu.xid", "fail", "Xid 79: The GPU has fallen off the bus", "GPU 1")
    assert told_once([lost, other]) == (lost, other)
    memory = replace(other, subject="GPU 0", title="Xid 48: An uncorrectable error")
    assert told_once([lost, memory]) == (lost, memory)


def test_a_warning_explains_no_failure() -> None:
    pending = Finding("gpu.retired-pages", "warn", "Bad memory pages wait to be retired", "GPU 0")
    failed = Finding("gpu.xid", "fail", "Xid 64: A bad memory page could not be retired", "GPU 0")
    assert told_once([pending, failed]) == (pending, failed)


def test_the_table_names_checks_that_there_are() -> None:
    known_checks = {check.id for check in all_checks()}
    assert {name for row in CONSEQUENCES for name in (row.cause, *row.effects)} <= known_checks
    assert not [row for row in CONSEQUENCES if row.cause in row.effects]


def test_a_profile_still_needs_its_number_of_gpus() -> None:
    facts = with_nvidia(gpus=(h200(0), LOST))
    failed = {each.check for each in examine(facts, H200) if each.status == "fail"}
    assert "gpu.fallen-off-bus" in failed
